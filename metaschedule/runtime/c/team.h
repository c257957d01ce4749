/* One parallel region for many kernels: a fork and a join of ours within it instead of OpenMP's for each.

   The first thread of the region runs the kernels. The others wait at their seats for the parallel loops that
   it comes to: a loop is a *round*, published in one word, and whoever sees it claims the seat of that round.
   Seats that nobody has claimed when the first thread has done its share are its own: a thread that something
   else keeps from its core is not waited for unless it has begun. Bodies divide their work by seats, so it is
   the same whoever sits there.

   Included where `Runtime`, what a kernel is told (kernel.py), has been declared; a kernel's closure begins
   with the address of its runtime, which is that of the team. */
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#define WAIT_PRIVATE 128 /* of futex(2), whose header is not everywhere */
#define WAKE_PRIVATE 129
#endif

#define LINE 64
#define PATIENT 100000 /* looks before a thread sleeps: milliseconds, more than most serial kernels take */
#define CROWDED 100    /* looks where there are more threads than cores */

typedef void Body(void *);
typedef void Parallel(Body *, void *, unsigned, unsigned);
typedef struct { /* the round for which it was taken, and the one that its helper has done */
    _Alignas(LINE) _Atomic uint64_t claimed;
    _Alignas(LINE) _Atomic uint64_t done;
} Seat;
typedef struct {
    Runtime runtime;
    void (*lead)(void *); /* what the first thread does, with `work` */
    void *work;
    int (*thread_num)(void);
    int32_t size, patience;
    Body *body; /* of the round */
    void *data;
    _Alignas(LINE) _Atomic uint64_t word; /* number of the round << 16 | its seats; ENDED: no more */
    _Atomic int32_t asleep;
    Seat seats[]; /* the first is not used */
} Team;

#define ENDED UINT64_MAX
#define MOST_SEATS 256

static _Thread_local int32_t own_seat, seats_taken;
static _Atomic int32_t threads_in_teams;

static int seat_number(void) { return own_seat; }
static int seat_count(void) { return seats_taken; }

static inline void look_away(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void publish(Team *team, uint64_t word) {
    atomic_store(&team->word, word);
    if (!atomic_load(&team->asleep)) return;
#ifdef __linux__
    syscall(SYS_futex, &team->word, WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
#endif
}

/* The word when it is no longer this one. */
static uint64_t wait_for_news(Team *team, uint64_t known) {
    uint64_t word;
    for (int32_t n = 0; n < team->patience; n++) {
        if ((word = atomic_load_explicit(&team->word, memory_order_acquire)) != known) return word;
        look_away();
    }
    atomic_fetch_add(&team->asleep, 1);
    while ((word = atomic_load(&team->word)) == known) {
#if defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        syscall(SYS_futex, &team->word, WAIT_PRIVATE, (uint32_t)known, NULL, NULL, 0);
#else
        sched_yield();
#endif
    }
    atomic_fetch_sub(&team->asleep, 1);
    return word;
}

/* Whether this thread is the one that has the seat in a round. */
static int claim(Seat *seat, uint64_t round) {
    uint64_t before = atomic_load_explicit(&seat->claimed, memory_order_relaxed);
    return before < round && atomic_compare_exchange_strong(&seat->claimed, &before, round);
}

static void sit(Team *team, int32_t number, int32_t count) {
    int32_t seat = own_seat, seats = seats_taken;
    own_seat = number, seats_taken = count;
    team->body(team->data);
    own_seat = seat, seats_taken = seats;
}

/* What kernels call in the place of GOMP_parallel. */
static void share_round(Body *body, void *data, unsigned count, unsigned flags) {
    Team *team = *(Team **)data;
    uint64_t round = (atomic_load_explicit(&team->word, memory_order_relaxed) >> 16) + 1;
    (void)flags;
    team->body = body, team->data = data;
    publish(team, round << 16 | count);
    sit(team, 0, (int32_t)count);
    for (unsigned n = 1; n < count; n++)
        if (claim(&team->seats[n], round)) {
            sit(team, (int32_t)n, (int32_t)count);
            atomic_store_explicit(&team->seats[n].done, round, memory_order_relaxed);
        }
    for (unsigned n = 1; n < count; n++)
        for (int32_t looks = 0; atomic_load_explicit(&team->seats[n].done, memory_order_acquire) != round;)
            looks++ < team->patience ? look_away() : (void)sched_yield();
}

static void join_team(void *data) {
    Team *team = data;
    int32_t number = team->thread_num();
    if (!number) {
        team->lead(team->work);
        publish(team, ENDED);
        return;
    }
    for (uint64_t word = 0; (word = wait_for_news(team, word)) != ENDED;) {
        int32_t count = word & 0xFFFF;
        if (number < count && claim(&team->seats[number], word >> 16)) {
            sit(team, number, count);
            atomic_store_explicit(&team->seats[number].done, word >> 16, memory_order_release);
        }
    }
}

static int32_t count_cores(void) {
    static _Atomic int32_t known;
    int32_t found = atomic_load_explicit(&known, memory_order_relaxed);
    if (found) return found;
    cpu_set_t set;
    found = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    atomic_store_explicit(&known, found, memory_order_relaxed);
    return found;
}

/* Run `lead` on `size` threads, of `parallel`, with a runtime that tells kernels to share rounds. */
static void lead_team(Team *team, int32_t size, Parallel *parallel) {
    int32_t all = atomic_fetch_add(&threads_in_teams, size) + size;
    team->size = size;
    team->patience = all > count_cores() ? CROWDED : PATIENT;
    atomic_init(&team->word, 0);
    atomic_init(&team->asleep, 0);
    for (int32_t n = 0; n < size; n++) atomic_init(&team->seats[n].claimed, 0), atomic_init(&team->seats[n].done, 0);
    parallel(join_team, team, (unsigned)size, 0);
    atomic_fetch_sub(&threads_in_teams, size);
}
