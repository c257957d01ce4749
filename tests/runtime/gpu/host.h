// CUDA C on the CPU: a block's threads are contexts of one thread of the machine, each runs up to a barrier.
#include <ucontext.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

struct int3_ { int x, y, z; };
static int3_ threadIdx, blockIdx;
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
#define __global__
#define __device__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
template <class T, class F> static T bits_as(F value) { T result; memcpy(&result, &value, sizeof result); return result; }
static float __uint_as_float(uint32_t x) { return bits_as<float>(x); }
static uint32_t __float_as_uint(float x) { return bits_as<uint32_t>(x); }
static double __longlong_as_double(long long x) { return bits_as<double>(x); }
static float rsqrtf(float x) { return 1 / sqrtf(x); }
static int atomicCAS(int* place, int expected, int wanted) { int old = *place; if (old == expected) *place = wanted; return old; }

struct Thread { ucontext_t context; int3_ place; long barriers; bool done; double shuffled; };
static std::vector<Thread> threads;
static ucontext_t scheduler;
static size_t now;
static std::function<void()> body;

static void pause_thread() { swapcontext(&threads[now].context, &scheduler); }
static void __syncthreads() { ++threads[now].barriers; pause_thread(); }
template <class T> static T __shfl_down_sync(unsigned, T value, int step, int width) {
  threads[now].shuffled = (double)value;
  __syncthreads();
  size_t source = now % 32 % width + step < (size_t)width && now + step < threads.size() ? now + step : now;
  T found = (T)threads[source].shuffled;
  __syncthreads();
  return found;
}
static void run_thread() { body(); threads[now].done = true; for (;;) pause_thread(); }

// 0, or 1 if some threads end where others wait.
static int run_blocks(const int* grid, const int* block, std::function<void()> kernel) {
  const size_t stack = 1 << 17, count = (size_t)block[0] * block[1] * block[2];
  std::vector<char> stacks(stack * count);
  body = kernel;
  for (int z = 0; z < grid[2]; ++z) for (int y = 0; y < grid[1]; ++y) for (int x = 0; x < grid[0]; ++x) {
    threads.assign(count, Thread());
    for (size_t n = 0; n < count; ++n) {
      Thread& t = threads[n];
      t.place = {(int)(n % block[0]), (int)(n / block[0] % block[1]), (int)(n / block[0] / block[1])};
      getcontext(&t.context);
      t.context.uc_stack.ss_sp = &stacks[stack * n];
      t.context.uc_stack.ss_size = stack;
      makecontext(&t.context, run_thread, 0);
    }
    for (size_t left = count; left;) {
      left = 0;
      for (now = 0; now < count; ++now) {
        if (threads[now].done) continue;
        threadIdx = threads[now].place;
        blockIdx = {x, y, z};
        swapcontext(&scheduler, &threads[now].context);
      }
      long least = threads[0].barriers, most = least;
      for (Thread& t : threads) {
        left += !t.done;
        least = t.barriers < least ? t.barriers : least;
        most = t.barriers > most ? t.barriers : most;
      }
      if (most != least) return 1;
    }
  }
  return 0;
}
