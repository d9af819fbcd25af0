// The host's parallel loop: one pool of threads for the whole process, tasks claimed dynamically.
//
// A waiting thread spins for a bounded time and then sleeps, so that a core taken by another process costs little
// (OpenMP's default spins without end there). Which thread runs which task never enters a result. POSIX threads and the
// compiler's atomics only: the ziglang wheel would build a whole C++ library for more.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

namespace {

typedef void (*Task)(void* context, int task);

constexpr int SPINS = 2000;
constexpr int MAX_WORKERS = 1023;

struct Lock {
    pthread_mutex_t& mutex;
    explicit Lock(pthread_mutex_t& m) : mutex(m) { pthread_mutex_lock(&mutex); }
    ~Lock() { pthread_mutex_unlock(&mutex); }
};

struct Pool {
    pid_t owner;
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    pthread_t workers[MAX_WORKERS];
    int count;
    long generation;  // counts the loops: a change wakes the workers
    int next, active;
    Task task;
    void* context;
    int tasks;
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

void drain(Pool* pool) {
    for (;;) {
        const int i = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED);
        if (i >= pool->tasks) return;
        pool->task(pool->context, i);
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
            pthread_cond_signal(&pool->done);
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
    while (pool->count < threads - 1 && pool->count < MAX_WORKERS)
        if (pthread_create(&pool->workers[pool->count], nullptr, work, pool) == 0)
            pool->count++;
        else
            break;  // fewer threads than asked for change no result
}

void run(Pool* pool, int count, Task task, void* context) {
    {
        Lock lock(pool->mutex);
        pool->task = task;
        pool->context = context;
        pool->tasks = count;
        pool->next = 0;
        pool->active = pool->count;
        advance(pool);
    }
    drain(pool);
    for (int spin = 0; spin < SPINS && __atomic_load_n(&pool->active, __ATOMIC_ACQUIRE) != 0; spin++) {
    }
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

}  // namespace

extern "C" void set_threads(int threads) {
    Lock lock(pool_use);
    __atomic_store_n(&pool_threads, threads < 1 ? 1 : threads, __ATOMIC_RELAXED);
    if (pool && pool->owner == getpid()) resize(pool, pool_threads);
}

// Runs task(context, 0 .. count - 1). A loop begun while another one runs (from another thread of the program) runs
// in its own thread; a child after fork() has no workers of its parent's and makes its own.
extern "C" void parallel_for(int count, Task task, void* context) {
    if (count > 1 && __atomic_load_n(&pool_threads, __ATOMIC_RELAXED) > 1 && pthread_mutex_trylock(&pool_use) == 0) {
        if (!pool || pool->owner != getpid()) {
            pool = make_pool();
            resize(pool, pool_threads);
        }
        run(pool, count, task, context);
        pthread_mutex_unlock(&pool_use);
        return;
    }
    for (int i = 0; i < count; i++) task(context, i);
}
