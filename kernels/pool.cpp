// The host's parallel loop: one pool of threads for the whole process, tasks claimed dynamically.
//
// A waiting thread spins for a bounded time and then sleeps, so that a core taken by another process costs little
// (OpenMP's default spins without end there). Which thread runs which task never enters a result.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using Task = void (*)(void* context, int task);

constexpr int SPINS = 2000;

struct Pool {
    const pid_t owner = getpid();
    std::mutex mutex;
    std::condition_variable wake, done;
    std::vector<std::thread> workers;
    std::atomic<long> generation{0};  // counts the loops: a change wakes the workers
    std::atomic<int> next{0}, active{0};
    Task task = nullptr;
    void* context = nullptr;
    int tasks = 0;
    bool stop = false;

    void drain() {
        for (int i = next.fetch_add(1); i < tasks; i = next.fetch_add(1)) task(context, i);
    }

    void work(long seen) {
        for (;;) {
            for (int spin = 0; spin < SPINS && generation.load(std::memory_order_acquire) == seen; spin++)
                std::atomic_signal_fence(std::memory_order_seq_cst);
            {
                std::unique_lock<std::mutex> lock(mutex);
                wake.wait(lock, [&] { return generation.load() != seen; });
                seen = generation.load();
                if (stop) return;
            }
            drain();
            if (active.fetch_sub(1) == 1) {
                std::lock_guard<std::mutex> lock(mutex);
                done.notify_one();
            }
        }
    }

    void resize(int threads) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            stop = true;
            generation++;
        }
        wake.notify_all();
        for (auto& worker : workers) worker.join();
        workers.clear();
        stop = false;
        for (int i = 1; i < threads; i++) workers.emplace_back([this, seen = generation.load()] { work(seen); });
    }

    void run(int count, Task function, void* argument) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            task = function;
            context = argument;
            tasks = count;
            next = 0;
            active = (int)workers.size();
            generation++;
        }
        wake.notify_all();
        drain();
        for (int spin = 0; spin < SPINS && active.load(std::memory_order_acquire) != 0; spin++)
            std::atomic_signal_fence(std::memory_order_seq_cst);
        std::unique_lock<std::mutex> lock(mutex);
        done.wait(lock, [&] { return active.load() == 0; });
    }
};

std::mutex pool_use;
Pool* pool = nullptr;  // leaked on purpose: threads may outlive static destructors
std::atomic<int> pool_threads{1};

// A fork waits for the loop that another thread runs: the child must not inherit a lock that nobody opens.
const int fork_handlers = pthread_atfork([] { pool_use.lock(); }, [] { pool_use.unlock(); }, [] { pool_use.unlock(); });

}  // namespace

extern "C" void set_threads(int threads) {
    std::lock_guard<std::mutex> lock(pool_use);
    pool_threads = threads < 1 ? 1 : threads;
    if (pool && pool->owner == getpid()) pool->resize(pool_threads);
}

// Runs task(context, 0 .. count - 1). A loop begun while another one runs (from another thread of the program) runs
// in its own thread; a child after fork() has no workers of its parent's and makes its own.
extern "C" void parallel_for(int count, Task task, void* context) {
    if (count > 1 && pool_threads > 1 && pool_use.try_lock()) {
        if (!pool || pool->owner != getpid()) {
            pool = new Pool;
            pool->resize(pool_threads);
        }
        pool->run(count, task, context);
        pool_use.unlock();
        return;
    }
    for (int i = 0; i < count; i++) task(context, i);
}
