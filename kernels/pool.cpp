// The host's parallel loops: one pool of threads for the whole process, tasks claimed dynamically.
//
// A program is a list of launches, recorded once and run by one call: the threads wake once, and go from a launch to the
// next when all its tasks are done. A waiting thread spins for a bounded time and then sleeps, so that a core taken by
// another process costs little (OpenMP's default spins without end there); nobody waits for a thread that holds no task.
// Which thread runs which task never enters a result. POSIX threads and the compiler's atomics only: the ziglang wheel
// would build a whole C++ library for more.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace {

typedef void (*Task)(void* context, int task);

constexpr int SPINS = 2000;
constexpr int MAX_WORKERS = 1023;
constexpr int STACK = 8 << 20;  // bytes, as a main thread has: tiles lie there, and some systems give half a megabyte

struct Lock {
    pthread_mutex_t& mutex;
    explicit Lock(pthread_mutex_t& m) : mutex(m) { pthread_mutex_lock(&mutex); }
    ~Lock() { pthread_mutex_unlock(&mutex); }
};

// A kernel on its blocks, and how far it is.
struct Launch {
    Task task;
    void* context;
    int tasks;
    int next, done;
};

struct Pool {
    pid_t owner;
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    pthread_t workers[MAX_WORKERS];
    int count;
    long generation;  // counts the loops: a change wakes the workers
    int active, waiting;
    Launch* launches;
    int launch_count;
    bool stop;
};

Pool* make_pool() {
    Pool* pool = (Pool*)calloc(1, sizeof(Pool));
    pool->owner = getpid();
    pthread_mutex_init(&pool->mutex, nullptr);
    pthread_cond_init(&pool->wake, nullptr);
    pthread_cond_init(&pool->done, nullptr);
    return pool;
}

void pause_a_moment() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Runs what it can claim of each launch in turn, and waits until the others have done theirs.
void drain(Pool* pool) {
    for (int l = 0; l < pool->launch_count; l++) {
        Launch* launch = pool->launches + l;
        for (;;) {
            const int i = __atomic_fetch_add(&launch->next, 1, __ATOMIC_RELAXED);
            if (i >= launch->tasks) break;
            launch->task(launch->context, i);
            // Either the last one sees who sleeps, or who goes to sleep sees that it is done.
            if (__atomic_add_fetch(&launch->done, 1, __ATOMIC_SEQ_CST) == launch->tasks &&
                __atomic_load_n(&pool->waiting, __ATOMIC_SEQ_CST)) {
                Lock lock(pool->mutex);
                pthread_cond_broadcast(&pool->done);
            }
        }
        for (int spin = 0; spin < SPINS && __atomic_load_n(&launch->done, __ATOMIC_ACQUIRE) != launch->tasks; spin++)
            pause_a_moment();
        if (__atomic_load_n(&launch->done, __ATOMIC_ACQUIRE) == launch->tasks) continue;
        Lock lock(pool->mutex);
        __atomic_add_fetch(&pool->waiting, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&launch->done, __ATOMIC_SEQ_CST) != launch->tasks)
            pthread_cond_wait(&pool->done, &pool->mutex);
        __atomic_sub_fetch(&pool->waiting, 1, __ATOMIC_SEQ_CST);
    }
}

void* work(void* argument) {
    Pool* pool = (Pool*)argument;
    long seen = 0;  // workers begin at generation 0
    for (;;) {
        for (int spin = 0; spin < SPINS && __atomic_load_n(&pool->generation, __ATOMIC_ACQUIRE) == seen; spin++) {
        }
        {
            Lock lock(pool->mutex);
            while (pool->generation == seen) pthread_cond_wait(&pool->wake, &pool->mutex);
            seen = pool->generation;
            if (pool->stop) return nullptr;
        }
        drain(pool);
        if (__atomic_fetch_sub(&pool->active, 1, __ATOMIC_ACQ_REL) == 1) {
            Lock lock(pool->mutex);
            pthread_cond_broadcast(&pool->done);
        }
    }
}

// Wakes the workers; the mutex is held.
void advance(Pool* pool) {
    __atomic_store_n(&pool->generation, pool->generation + 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&pool->wake);
}

void resize(Pool* pool, int threads) {
    {
        Lock lock(pool->mutex);
        pool->stop = true;
        advance(pool);
    }
    for (int i = 0; i < pool->count; i++) pthread_join(pool->workers[i], nullptr);
    pool->stop = false;
    pool->generation = 0;
    pool->count = 0;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    while (pool->count < threads - 1 && pool->count < MAX_WORKERS)
        if (pthread_create(&pool->workers[pool->count], &attributes, work, pool) == 0)
            pool->count++;
        else
            break;  // fewer threads than asked for change no result
    pthread_attr_destroy(&attributes);
}

void run(Pool* pool, Launch* launches, int count) {
    {
        Lock lock(pool->mutex);
        pool->launches = launches;
        pool->launch_count = count;
        pool->active = pool->count;
        advance(pool);
    }
    drain(pool);
    // A worker may still look at the launches: they are the caller's again when none does.
    for (int spin = 0; spin < SPINS && __atomic_load_n(&pool->active, __ATOMIC_ACQUIRE) != 0; spin++) pause_a_moment();
    Lock lock(pool->mutex);
    while (__atomic_load_n(&pool->active, __ATOMIC_ACQUIRE) != 0) pthread_cond_wait(&pool->done, &pool->mutex);
}

pthread_mutex_t pool_use = PTHREAD_MUTEX_INITIALIZER;
Pool* pool = nullptr;  // leaked on purpose: threads may outlive static destructors
int pool_threads = 1;

// A fork waits for the loop that another thread runs: the child must not inherit a lock that nobody opens.
void lock_pool() { pthread_mutex_lock(&pool_use); }
void unlock_pool() { pthread_mutex_unlock(&pool_use); }
const int fork_handlers = pthread_atfork(lock_pool, unlock_pool, unlock_pool);

// Runs the launches in order. Launches begun while others run (from another thread of the program) run in their own
// thread; a child after fork() has no workers of its parent's and makes its own.
void run_all(Launch* launches, int count) {
    for (int l = 0; l < count; l++) launches[l].next = launches[l].done = 0;
    const bool alone = count == 1 && launches->tasks < 2;
    if (!alone && __atomic_load_n(&pool_threads, __ATOMIC_RELAXED) > 1 && pthread_mutex_trylock(&pool_use) == 0) {
        if (!pool || pool->owner != getpid()) {
            pool = make_pool();
            resize(pool, pool_threads);
        }
        run(pool, launches, count);
        pthread_mutex_unlock(&pool_use);
        return;
    }
    for (int l = 0; l < count; l++)
        for (int i = 0; i < launches[l].tasks; i++) launches[l].task(launches[l].context, i);
}

struct Program {
    Launch* launches;
    int count, room;
};

__thread Program* recording = nullptr;

}  // namespace

extern "C" void set_threads(int threads) {
    Lock lock(pool_use);
    __atomic_store_n(&pool_threads, threads < 1 ? 1 : threads, __ATOMIC_RELAXED);
    if (pool && pool->owner == getpid()) resize(pool, pool_threads);
}

// What every kernel's launch calls: runs task(context, 0 .. count - 1) now, or, while this thread records, keeps it.
extern "C" void submit(int count, Task task, void* context, int bytes) {
    Launch launch{task, context, count, 0, 0};
    if (!recording) {
        run_all(&launch, 1);
        return;
    }
    Program* program = recording;
    if (program->count == program->room) {
        program->room = program->room ? 2 * program->room : 64;
        program->launches = (Launch*)realloc(program->launches, program->room * sizeof(Launch));
    }
    launch.context = memcpy(malloc(bytes), context, bytes);
    program->launches[program->count++] = launch;
}

// A new program, to which this thread's launches go until it is run or another is recorded; nullptr: launches run again.
extern "C" Program* program_new() { return (Program*)calloc(1, sizeof(Program)); }
extern "C" void program_record(Program* program) { recording = program; }
extern "C" void program_run(Program* program) { run_all(program->launches, program->count); }
extern "C" void program_free(Program* program) {
    for (int l = 0; l < program->count; l++) free(program->launches[l].context);
    free(program->launches);
    free(program);
}
