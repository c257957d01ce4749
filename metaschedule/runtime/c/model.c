/* A model without Python: the tables of its plan are carried out (see model_library.py, which writes
   tables.h: the names, sizes and steps of one model). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "header.h"

#define PUBLIC __attribute__((visibility("default")))
#define ALIGNMENT 64
#define IDLE 64 /* memories that an instance keeps between calls, at the most */
#define FILE_HEAD 4096

enum { OK = 0, NO_MEMORY = -1, NO_POINTER = -2, NOT_ALIGNED = -3, OVERLAP = -4, NO_WEIGHTS = -5,
       OTHER_WEIGHTS = -6, OTHER_CPU = -7, WRONG_THREADS = -8 };

typedef struct {
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
    int (*thread_num)(void);
    int (*num_threads)(void);
    int32_t threads;
    int64_t value;
} Runtime; /* what a kernel is given (kernel.py) */

typedef int32_t Kernel(void **, void *, Runtime *);
typedef struct { int32_t base; int64_t offset; } Place;
typedef struct { /* the first place is that of the workspace */
    Kernel *kernel;
    const Place *places;
    int32_t count, max_threads, first_status;
} Step;
typedef struct { /* an output that no kernel writes in its place; strides in bytes */
    Place from;
    int32_t output, rank;
    const int64_t *shape, *strides;
    int64_t item;
} Copy;

enum { WEIGHTS, MEMORY, FIRST }; /* bases: then the inputs, then the outputs */

#include "tables.h"
#if PARALLEL_STEPS > 1
#include "team.h"
#endif

static const char *const MESSAGES[] = {
    "ok", "out of memory", "a pointer is NULL", "a tensor is not aligned to its element",
    "an output overlaps another tensor", "the file of the weights cannot be read",
    "the file of the weights is damaged, or not the one of this library", LACKING,
    "the number of threads is negative",
};

struct MODEL {
    const char *weights;
    size_t mapped; /* bytes; 0 where the weights are in the library */
    int32_t threads;
    _Atomic(void *) idle[IDLE];
};

static void *take_memory(MODEL *instance) {
    for (int n = 0; n < IDLE; n++) {
        if (!atomic_load_explicit(&instance->idle[n], memory_order_relaxed)) continue;
        void *found = atomic_exchange(&instance->idle[n], NULL);
        if (found) return found;
    }
    void *memory;
    return posix_memalign(&memory, ALIGNMENT, MEMORY_BYTES) ? NULL : memory;
}

static void give_memory(MODEL *instance, void *memory) {
    for (int n = 0; n < IDLE; n++) {
        void *none = NULL;
        if (atomic_compare_exchange_strong(&instance->idle[n], &none, memory)) return;
    }
    free(memory);
}

static void copy_strided(char **to, const char *from, const Copy *copy, int32_t d) {
    if (d == copy->rank) {
        memcpy(*to, from, copy->item);
        *to += copy->item;
    } else if (d == copy->rank - 1 && copy->strides[d] == copy->item) {
        memcpy(*to, from, copy->item * copy->shape[d]);
        *to += copy->item * copy->shape[d];
    } else {
        for (int64_t i = 0; i < copy->shape[d]; i++) copy_strided(to, from + i * copy->strides[d], copy, d + 1);
    }
}

static int check_tensor(const void *tensor, const MODEL_tensor *spec, int64_t item) {
    if (!spec->nbytes) return OK; /* nothing is read of it */
    if (!tensor) return NO_POINTER;
    return (uintptr_t)tensor % item ? NOT_ALIGNED : OK;
}

static bool overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    return a_bytes && b_bytes && a < b + b_bytes && b < a + a_bytes;
}

static int check_tensors(const void *const *inputs, void *const *outputs) {
    if ((INPUTS && !inputs) || (OUTPUTS && !outputs)) return NO_POINTER;
    for (int n = 0; n < INPUTS; n++) {
        int status = check_tensor(inputs[n], &input_specs[n], input_items[n]);
        if (status) return status;
    }
    for (int n = 0; n < OUTPUTS; n++) {
        int status = check_tensor(outputs[n], &output_specs[n], output_items[n]);
        if (status) return status;
        for (int m = 0; m < INPUTS + n; m++) {
            const void *other = m < INPUTS ? inputs[m] : outputs[m - INPUTS];
            size_t size = m < INPUTS ? input_specs[m].nbytes : output_specs[m - INPUTS].nbytes;
            if (overlap(outputs[n], output_specs[n].nbytes, other, size)) return OVERLAP;
        }
    }
    return OK;
}

typedef struct {
    char *const *bases;
    Runtime *runtime;
    int32_t threads;
    int status;
} Walk;

static void walk(void *data) {
    Walk *walk = data;
    void *addresses[MOST_PLACES];
    for (int s = 0; s < STEPS; s++) {
        const Step *step = &steps[s];
        walk->runtime->threads = walk->threads < step->max_threads ? walk->threads : step->max_threads;
        for (int p = 0; p < step->count; p++)
            addresses[p] = walk->bases[step->places[p].base] + step->places[p].offset;
        int32_t status = step->kernel(addresses + 1, addresses[0], walk->runtime);
        if (status) {
            walk->status = step->first_status + status - 1;
            return;
        }
    }
}

static int run_steps(char *const *bases, int32_t threads) {
    Runtime runtime = RUNTIME;
    Walk work = { bases, &runtime, threads, OK };
#if PARALLEL_STEPS > 1
    if (threads > 1 && threads <= MOST_SEATS) {
        char memory[sizeof(Team) + (size_t)threads * sizeof(Seat) + LINE];
        Team *team = (Team *)(((uintptr_t)memory + LINE - 1) & ~(uintptr_t)(LINE - 1));
        team->runtime = (Runtime){ share_round, seat_number, seat_count, 1, 0 };
        team->lead = walk, team->work = &work, team->thread_num = runtime.thread_num;
        work.runtime = &team->runtime;
        lead_team(team, threads, runtime.parallel);
        return work.status;
    }
#endif
    walk(&work);
    return work.status;
}

PUBLIC int MODEL_run(MODEL *instance, const void *const *inputs, void *const *outputs) {
    if (!instance) return NO_POINTER;
    int status = check_tensors(inputs, outputs);
    if (status) return status;
    char *bases[FIRST + INPUTS + OUTPUTS];
    bases[WEIGHTS] = (char *)instance->weights;
    bases[MEMORY] = take_memory(instance);
    if (!bases[MEMORY]) return NO_MEMORY;
    for (int n = 0; n < INPUTS; n++) bases[FIRST + n] = (char *)inputs[n];
    for (int n = 0; n < OUTPUTS; n++) bases[FIRST + INPUTS + n] = outputs[n];
    int32_t threads = instance->threads ? instance->threads : MAX_THREADS;
    status = run_steps(bases, threads < PLANNED_THREADS ? threads : PLANNED_THREADS);
    for (int n = 0; n < COPIES && !status; n++) {
        char *to = outputs[copies[n].output];
        if (output_specs[copies[n].output].nbytes)
            copy_strided(&to, bases[copies[n].from.base] + copies[n].from.offset, &copies[n], 0);
    }
    give_memory(instance, bases[MEMORY]);
    return status;
}

#if WEIGHTS_BESIDE
/* The file of the weights: a head with MAGIC and the digest, zeros up to FILE_HEAD bytes, the weights. */
static int map_weights(MODEL *instance, const char *path) {
    char beside[PATH_MAX];
    if (!path) {
        Dl_info info;
        if (!dladdr((void *)map_weights, &info) || !info.dli_fname) return NO_WEIGHTS;
        const char *slash = strrchr(info.dli_fname, '/');
        int length = slash ? (int)(slash - info.dli_fname) + 1 : 0;
        int written = snprintf(beside, sizeof beside, "%.*s%s", length, info.dli_fname, WEIGHTS_FILE);
        if (written >= (int)sizeof beside) return NO_WEIGHTS;
        path = beside;
    }
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return NO_WEIGHTS;
    struct stat found;
    size_t size = FILE_HEAD + (size_t)WEIGHTS_BYTES;
    if (fstat(file, &found) || (uint64_t)found.st_size != size) {
        close(file);
        return OTHER_WEIGHTS;
    }
    char *mapped = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return NO_MEMORY;
    if (memcmp(mapped, WEIGHTS_HEAD, sizeof WEIGHTS_HEAD - 1)) {
        munmap(mapped, size);
        return OTHER_WEIGHTS;
    }
    instance->weights = mapped + FILE_HEAD;
    instance->mapped = size;
    return OK;
}
#else
static int map_weights(MODEL *instance, const char *path) {
    (void)path;
    instance->weights = MODEL_weights;
    return OK;
}
#endif

#if defined(__x86_64__)
/* A bit of CPUID, for features whose names not every compiler knows: registers 0 to 3 are eax to edx. */
static bool has_bit(unsigned leaf, unsigned subleaf, int which, int bit) {
    unsigned registers[4];
    if (!__get_cpuid_count(leaf, subleaf, registers, registers + 1, registers + 2, registers + 3)) return false;
    return registers[which] >> bit & 1;
}
#endif

static bool has_features(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    (void)has_bit;
#endif
#if USES_TILES
    /* arch_prctl(ARCH_REQ_XCOMP_PERM): Linux gives tiles to those who ask */
    if (syscall(158, 0x1023, 18)) return false;
#endif
    return HAS_FEATURES;
}

PUBLIC int MODEL_create(MODEL **instance, int32_t threads, const char *weights) {
    if (!instance) return NO_POINTER;
    *instance = NULL;
    if (threads < 0) return WRONG_THREADS;
    if (!has_features()) return OTHER_CPU;
    MODEL *made = calloc(1, sizeof *made);
    if (!made) return NO_MEMORY;
    made->threads = threads;
    int status = map_weights(made, weights);
    if (status) free(made);
    else *instance = made;
    return status;
}

PUBLIC void MODEL_destroy(MODEL *instance) {
    if (!instance) return;
    for (int n = 0; n < IDLE; n++) free(instance->idle[n]);
    if (instance->mapped) munmap((char *)instance->weights - FILE_HEAD, instance->mapped);
    free(instance);
}

PUBLIC const char *MODEL_message(int status) {
    int own = sizeof MESSAGES / sizeof *MESSAGES;
    if (status <= 0 && status > -own) return MESSAGES[-status];
    return status > 0 && status <= FAILURES ? failures[status - 1] : "unknown status";
}

PUBLIC int32_t MODEL_input_count(void) { return INPUTS; }
PUBLIC int32_t MODEL_output_count(void) { return OUTPUTS; }
PUBLIC size_t MODEL_memory(void) { return MEMORY_BYTES; }

PUBLIC const MODEL_tensor *MODEL_input(int32_t number) {
    return number >= 0 && number < INPUTS ? &input_specs[number] : NULL;
}

PUBLIC const MODEL_tensor *MODEL_output(int32_t number) {
    return number >= 0 && number < OUTPUTS ? &output_specs[number] : NULL;
}
