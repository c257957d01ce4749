"""The LLVM text of `watch`: fingerprints of regions of memory, and whether a list holds certain objects.

A region is an address and a number of bytes. `fetch` prefetches regions. `digest` adds up products: of pairs
of words of whole cache lines (eight at a time, turned from line to line), and of single words with factors of
their own. No single change leaves the sum as it was, and neighbours do not wait for each other. `are_same`
fetches everything first, then looks at objects, at headers, and at samples only if those are as they were:
the memory of the samples may be gone otherwise.
"""

TEXT = """
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <8 x i64> @llvm.fshl.v8i64(<8 x i64>, <8 x i64>, <8 x i64>)
declare i64 @llvm.vector.reduce.add.v8i64(<8 x i64>)
declare ptr @PyList_GetItem(ptr, i64)

define void @fetch(ptr %regions, i64 %count) {
entry:
  br label %head
head:
  %n = phi i64 [0, %entry], [%n.next, %done]
  %left = icmp ult i64 %n, %count
  br i1 %left, label %region, label %end
region:
  %at = getelementptr [2 x i64], ptr %regions, i64 %n
  %start = load ptr, ptr %at
  %size.at = getelementptr i64, ptr %at, i64 1
  %size = load i64, ptr %size.at
  br label %line
line:
  %offset = phi i64 [0, %region], [%offset.next, %line]
  %address = getelementptr i8, ptr %start, i64 %offset
  call void @llvm.prefetch.p0(ptr %address, i32 0, i32 3, i32 1)
  %offset.next = add i64 %offset, 64
  %more = icmp ult i64 %offset.next, %size
  br i1 %more, label %line, label %done
done:
  %n.next = add i64 %n, 1
  br label %head
end:
  ret void
}

define i64 @digest(ptr %regions, i64 %count) {
entry:
  br label %head
head:
  %n = phi i64 [0, %entry], [%n.next, %done]
  %lanes = phi <8 x i64> [zeroinitializer, %entry], [%lanes.lines, %done]
  %sum = phi i64 [0, %entry], [%sum.bytes, %done]
  %factor = phi i64 [-7046029254386353131, %entry], [%factor.bytes, %done]
  %left = icmp ult i64 %n, %count
  br i1 %left, label %region, label %end
region:
  %at = getelementptr [2 x i64], ptr %regions, i64 %n
  %start = load ptr, ptr %at
  %size.at = getelementptr i64, ptr %at, i64 1
  %size = load i64, ptr %size.at
  %lines = and i64 %size, -64
  %words = and i64 %size, -8
  br label %line.head
line.head:
  %l = phi i64 [0, %region], [%l.next, %line.body]
  %lanes.lines = phi <8 x i64> [%lanes, %region], [%lanes.line, %line.body]
  %l.left = icmp ult i64 %l, %lines
  br i1 %l.left, label %line.body, label %word.head
line.body:
  %line.at = getelementptr i8, ptr %start, i64 %l
  %line = load <16 x i32>, ptr %line.at, align 1
  %keyed = add <16 x i32> %line, <i32 1813382118, i32 827307999, i32 1627694678, i32 1911784257,
      i32 903170602, i32 86939546, i32 556019485, i32 2073320061, i32 1097954097, i32 1043521778,
      i32 869589436, i32 1971893209, i32 1683194652, i32 1782095536, i32 651359108, i32 2078334659>
  %even = shufflevector <16 x i32> %keyed, <16 x i32> poison, <8 x i32> <i32 0, i32 2, i32 4, i32 6,
      i32 8, i32 10, i32 12, i32 14>
  %odd = shufflevector <16 x i32> %keyed, <16 x i32> poison, <8 x i32> <i32 1, i32 3, i32 5, i32 7,
      i32 9, i32 11, i32 13, i32 15>
  %even.wide = zext <8 x i32> %even to <8 x i64>
  %odd.wide = zext <8 x i32> %odd to <8 x i64>
  %products = mul <8 x i64> %even.wide, %odd.wide
  %turned = call <8 x i64> @llvm.fshl.v8i64(<8 x i64> %lanes.lines, <8 x i64> %lanes.lines,
      <8 x i64> splat (i64 9))
  %lanes.line = add <8 x i64> %turned, %products
  %l.next = add i64 %l, 64
  br label %line.head
word.head:
  %w = phi i64 [%lines, %line.head], [%w.next, %word.body]
  %sum.words = phi i64 [%sum, %line.head], [%sum.word, %word.body]
  %factor.words = phi i64 [%factor, %line.head], [%factor.word, %word.body]
  %w.left = icmp ult i64 %w, %words
  br i1 %w.left, label %word.body, label %byte.head
word.body:
  %word.at = getelementptr i8, ptr %start, i64 %w
  %word = load i64, ptr %word.at, align 1
  %product = mul i64 %word, %factor.words
  %sum.word = add i64 %sum.words, %product
  %factor.word = add i64 %factor.words, 2270897969802886506
  %w.next = add i64 %w, 8
  br label %word.head
byte.head:
  %b = phi i64 [%words, %word.head], [%b.next, %byte.body]
  %sum.bytes = phi i64 [%sum.words, %word.head], [%sum.byte, %byte.body]
  %factor.bytes = phi i64 [%factor.words, %word.head], [%factor.byte, %byte.body]
  %b.left = icmp ult i64 %b, %size
  br i1 %b.left, label %byte.body, label %done
byte.body:
  %byte.at = getelementptr i8, ptr %start, i64 %b
  %byte = load i8, ptr %byte.at
  %wide = zext i8 %byte to i64
  %byte.product = mul i64 %wide, %factor.bytes
  %sum.byte = add i64 %sum.bytes, %byte.product
  %factor.byte = add i64 %factor.bytes, 2270897969802886506
  %b.next = add i64 %b, 1
  br label %byte.head
done:
  %n.next = add i64 %n, 1
  br label %head
end:
  %mixed = mul <8 x i64> %lanes, <i64 1, i64 3, i64 5, i64 7, i64 9, i64 11, i64 13, i64 15>
  %total = call i64 @llvm.vector.reduce.add.v8i64(<8 x i64> %mixed)
  %result = add i64 %total, %sum
  ret i64 %result
}

define i64 @are_in(ptr %list, ptr %places, ptr %objects, i64 %count) {
entry:
  br label %head
head:
  %n = phi i64 [0, %entry], [%n.next, %more]
  %left = icmp ult i64 %n, %count
  br i1 %left, label %body, label %yes
body:
  %place.at = getelementptr i64, ptr %places, i64 %n
  %place = load i64, ptr %place.at
  %object.at = getelementptr i64, ptr %objects, i64 %n
  %object = load ptr, ptr %object.at
  %found = call ptr @PyList_GetItem(ptr %list, i64 %place)
  %same = icmp eq ptr %found, %object
  br i1 %same, label %more, label %no
more:
  %n.next = add i64 %n, 1
  br label %head
yes:
  ret i64 1
no:
  ret i64 0
}

; %table: { places, objects, count, headers, their count, fingerprint, samples, their count, fingerprint }
define i64 @are_same(ptr %list, ptr %table) {
entry:
  %places.at = getelementptr i64, ptr %table, i64 0
  %places = load ptr, ptr %places.at
  %objects.at = getelementptr i64, ptr %table, i64 1
  %objects = load ptr, ptr %objects.at
  %count.at = getelementptr i64, ptr %table, i64 2
  %count = load i64, ptr %count.at
  %headers.at = getelementptr i64, ptr %table, i64 3
  %headers = load ptr, ptr %headers.at
  %headers.count.at = getelementptr i64, ptr %table, i64 4
  %headers.count = load i64, ptr %headers.count.at
  %headers.print.at = getelementptr i64, ptr %table, i64 5
  %headers.print = load i64, ptr %headers.print.at
  %samples.at = getelementptr i64, ptr %table, i64 6
  %samples = load ptr, ptr %samples.at
  %samples.count.at = getelementptr i64, ptr %table, i64 7
  %samples.count = load i64, ptr %samples.count.at
  %samples.print.at = getelementptr i64, ptr %table, i64 8
  %samples.print = load i64, ptr %samples.print.at
  call void @fetch(ptr %headers, i64 %headers.count)
  call void @fetch(ptr %samples, i64 %samples.count)
  %there = call i64 @are_in(ptr %list, ptr %places, ptr %objects, i64 %count)
  %in = icmp ne i64 %there, 0
  br i1 %in, label %look, label %no
look:
  %headers.now = call i64 @digest(ptr %headers, i64 %headers.count)
  %untouched = icmp eq i64 %headers.now, %headers.print
  br i1 %untouched, label %sample, label %no
sample:
  %samples.now = call i64 @digest(ptr %samples, i64 %samples.count)
  %equal = icmp eq i64 %samples.now, %samples.print
  %answer = zext i1 %equal to i64
  ret i64 %answer
no:
  ret i64 0
}
"""
