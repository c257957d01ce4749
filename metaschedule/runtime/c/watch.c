/* Fingerprints of regions of memory, and whether a list holds certain objects (see watch.py).

   Memory that no cache holds is what takes the time, so it is asked for AHEAD regions before it is read:
   dozens of misses are under way at once. */
#include <string.h>

#include "layout.h"
#include "python.h"

#define LINE 64
#define AHEAD 64

static void fetch(const Region *region) {
    for (int64_t offset = 0; offset < region->size; offset += LINE)
        __builtin_prefetch((char *)region->start + offset);
}

/* One function for each width of vectors where the C library can choose at load time. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__has_attribute)
#if __has_attribute(target_clones)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef WIDE
#define WIDE
#endif

static const uint64_t FACTOR = 0x9E3779B97F4A7C15u, KEYS[8] = {
    0x6C157AE4313F5F5Fu, 0x61045BD671F3B541u, 0x35D54F6A052E989Au, 0x2124319D7B94283Du,
    0x41716F313E32D8F2u, 0x33D4E0BC75885819u, 0x6453D81C6A38DF30u, 0x26D2E7847BE0D743u,
};

/* Sums of products: of the halves of the words of whole lines (eight sums, turned from line to line), and of
   single words with odd factors. Neighbours do not wait for each other. */
WIDE EXPORT uint64_t digest(const Region *regions, int64_t count) {
    uint64_t sums[8] = {0}, total = 0, factor = FACTOR;
    for (int64_t n = 0; n < count && n < AHEAD; n++) fetch(&regions[n]);
    for (int64_t n = 0; n < count; n++) {
        if (n + AHEAD < count) fetch(&regions[n + AHEAD]);
        const char *at = regions[n].start, *end = at + regions[n].size;
        for (; end - at >= LINE; at += LINE) {
            uint64_t words[8];
            memcpy(words, at, LINE);
            for (int i = 0; i < 8; i++) {
                uint64_t word = words[i] + KEYS[i];
                sums[i] = (sums[i] << 9 | sums[i] >> 55) + (word >> 32) * (uint32_t)word;
            }
        }
        for (; end - at >= 8; at += 8, factor += 2 * FACTOR) {
            uint64_t word;
            memcpy(&word, at, 8);
            total += word * factor;
        }
        for (; at < end; at++, factor += 2 * FACTOR) total += (uint8_t)*at * factor;
    }
    for (int i = 0; i < 8; i++) total += sums[i] * (2 * i + 1);
    return total;
}

/* Whether the objects are at their places of the list, and then both sets of regions as they were. The second
   is not read before the first has been found unchanged: its memory may be gone. */
EXPORT int64_t are_same(PyObject *list, const Watched *watched) {
    for (int64_t n = 0; n < watched->count; n++)
        if (PyList_GetItem(list, watched->places[n]) != watched->objects[n]) return 0;
    return digest(watched->headers, watched->headers_count) == (uint64_t)watched->headers_digest
        && digest(watched->samples, watched->samples_count) == (uint64_t)watched->samples_digest;
}
