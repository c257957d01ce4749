/* Fingerprints of regions of memory, and whether a list holds certain objects (see watch.py).

   Memory that no cache holds is what takes the time, so it is asked for AHEAD regions before it is read:
   dozens of misses are under way at once. */
#include <string.h>

#include "layout.h"
#include "python.h"

#define LINE 64
#define AHEAD 48

static void fetch(const Region *region) {
    for (int64_t offset = 0; offset < region->size; offset += LINE)
        __builtin_prefetch((char *)region->start + offset);
}

/* Sums of products with odd factors: no change of a single word leaves the sum as it was, and neighbours do not
   wait for each other. The eight words of a line have a sum each, which is turned from line to line. */
EXPORT uint64_t digest(const Region *regions, int64_t count) {
    const uint64_t factor = 0x9E3779B97F4A7C15u;
    uint64_t sums[8] = {0}, total = 0, weight = factor;
    for (int64_t n = 0; n < count && n < AHEAD; n++) fetch(&regions[n]);
    for (int64_t n = 0; n < count; n++) {
        if (n + AHEAD < count) fetch(&regions[n + AHEAD]);
        const char *at = regions[n].start, *end = at + regions[n].size;
        for (; end - at >= LINE; at += LINE) {
            uint64_t words[8];
            memcpy(words, at, LINE);
            for (int i = 0; i < 8; i++) sums[i] = (sums[i] << 9 | sums[i] >> 55) + words[i] * factor;
        }
        for (; at < end; at += 8, weight += 2 * factor) {
            uint64_t word = 0;
            memcpy(&word, at, end - at < 8 ? (size_t)(end - at) : 8);
            total += word * weight;
        }
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
