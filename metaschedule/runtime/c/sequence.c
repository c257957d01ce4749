/* Kernels one after the other without Python between them (see sequence.py). */
#define _GNU_SOURCE
#include <time.h>

#include "caller.h"
#include "team.h"

typedef struct {
    const Steps *sequence;
    char **bases;
    Runtime *runtime;
    int64_t allowed; /* threads */
    int64_t failed;
} Walk;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* All steps; with a `clock`, the time before the first and after each. */
static void walk(void *data) {
    Walk *walk = data;
    const Steps *sequence = walk->sequence;
    void *addresses[sequence->most_arguments + 1];
    if (sequence->clock) sequence->clock[0] = now();
    for (int64_t s = 0; s < sequence->count; s++) {
        const SequenceStep *step = &sequence->steps[s];
        walk->runtime->threads = (int32_t)(walk->allowed < step->max_threads ? walk->allowed : step->max_threads);
        for (int64_t a = 0; a < step->count; a++)
            addresses[a] = walk->bases[step->arguments[a].base] + step->arguments[a].offset;
        int32_t status = ((Kernel *)step->entry)(addresses + 1, addresses[0], walk->runtime);
        if (sequence->clock) sequence->clock[s + 1] = now();
        if (status) {
            walk->failed = s << 32 | (uint32_t)status;
            return;
        }
    }
}

/* As a team, where several kernels have parallel loops. */
static void walk_as_team(Walk *steps) {
    Runtime *runtime = steps->runtime;
    int32_t size = (int32_t)steps->allowed;
    char memory[sizeof(Team) + (size_t)size * sizeof(Seat) + LINE];
    Team *team = (Team *)(((uintptr_t)memory + LINE - 1) & ~(uintptr_t)(LINE - 1));
    team->runtime = *runtime;
    team->runtime.gomp_parallel = (void *)share_round;
    team->runtime.thread_num = (void *)seat_number;
    team->runtime.num_threads = (void *)seat_count;
    team->lead = walk, team->work = steps;
    team->thread_num = (int (*)(void))runtime->thread_num;
    steps->runtime = &team->runtime;
    lead_team(team, size, (Parallel *)runtime->gomp_parallel);
    runtime->value = team->runtime.value;
    steps->runtime = runtime;
}

/* --- several threads or one ------------------------------------------------------------------------------

   A thread that has to wait for its core, because another process runs there, is waited for: tens of
   milliseconds of a call that takes one. So calls that take much longer than usual are counted, and where
   they are common one thread is tried, for a while; it stays for as long as it is faster on average. Callers
   at the same time may lose a figure to each other, which does not matter. With a clock, whoever looks at the
   times wants them by all threads. */

#define DISTURBED(usual) (2 * (usual) + 50e-6)
#define OFTEN 1.8                   /* of about the last eight calls */
#define SHORTEST 20e-3              /* seconds by one thread, doubled every time that it was right */
#define LONGEST 2.0
#define HELD 64                     /* calls after which one thread, if it was no faster, is tried again */

static int is_alone(Steps *sequence, double begin) {
    return sequence->until > begin;
}

static void learn(Steps *sequence, int alone, double begin, double end) {
    double took = end - begin;
    if (alone) {
        sequence->alone += sequence->alone ? 0.25 * (took - sequence->alone) : took;
        if (sequence->alone > sequence->together) {
            sequence->until = 0;
            sequence->hold = HELD;
            sequence->rest = 0;
        }
        return;
    }
    int late = sequence->usual && took > DISTURBED(sequence->usual);
    sequence->usual = !sequence->usual || took < sequence->usual ? took : 0.999 * sequence->usual + 0.001 * took;
    sequence->together += sequence->together ? 0.125 * (took - sequence->together) : took;
    sequence->late += late - 0.125 * sequence->late;
    if (sequence->hold > 0) {
        sequence->hold--;
    } else if (sequence->late > OFTEN) {
        sequence->rest = sequence->rest ? 2 * sequence->rest : SHORTEST;
        if (sequence->rest > LONGEST) sequence->rest = LONGEST;
        sequence->until = end + sequence->rest;
        sequence->alone = 0;
        sequence->late = OFTEN - 1; /* one more is enough, when that time is over */
    } else if (sequence->late < 0.1) {
        sequence->rest = 0;
    }
}

/* A CPython function (METH_FASTCALL) of a number of threads and of addresses, the bases. It returns 0, or a
   tuple (status, value) of the first kernel that failed, with that step's number in the upper half of the
   status; -1 for a wrong number of arguments. */
EXPORT PyObject *run_steps(PyObject *self, PyObject *const *args, ptrdiff_t count) {
    Steps *sequence = PyLong_AsVoidPtr(self);
    if (count - 1 != sequence->bases) return PyLong_FromLongLong(-1);
    char *bases[count];
    bases[0] = NULL; /* base 0 is address 0 */
    for (ptrdiff_t b = 1; b < count; b++) bases[b] = PyLong_AsVoidPtr(args[b]);
    Runtime runtime;
    int64_t threads = (int64_t)PyLong_AsVoidPtr(args[0]);
    Walk steps = {sequence, bases, &runtime, form_team(sequence->process, threads, &runtime), 0};
    PyThreadState *state = PyEval_SaveThread();
    if (sequence->parallel > 1 && steps.allowed > 1 && steps.allowed <= MOST_SEATS) {
        double begin = now();
        int alone = !sequence->clock && is_alone(sequence, begin);
        if (alone) steps.allowed = 1, walk(&steps);
        else walk_as_team(&steps);
        if (!sequence->clock) learn(sequence, alone, begin, now());
    } else {
        walk(&steps);
    }
    PyEval_RestoreThread(state);
    return outcome(steps.failed, &runtime);
}
