// Runs launches of one kernel as a GPU would, in one thread of the system: a fiber for each CUDA thread, which gives way
// at a barrier. kernels/emulated.py puts the kernel in front of this text, and `kernel` to name it.
//
// Parameters come as a CUDA driver takes them, each by its address, and are read as the kernel's own signature says.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

constexpr int MAX_THREADS = 1024, MAX_SHARED = 8;
constexpr size_t STACK = 256 << 10;  // bytes; what no fiber touches is never there
constexpr size_t GUARD = 64;         // bytes before and after each shared array

struct Fiber {
    char* stack;
    jmp_buf context;
    const char* file;  // of the barrier that it waits at
    int line;
    bool begun, ended;
};
struct Shared {
    char* memory;
    size_t bytes;
};
static Fiber fibers[MAX_THREADS];
static Shared shared[MAX_SHARED], tile;
static jmp_buf scheduler;
static void* const* parameters;
static char message[256];
static bool failed;

// Back to the scheduler, which goes on with another fiber, or with none where the launch has failed.
static void give_way() {
    if (!_setjmp(fibers[threadIdx.x].context)) _longjmp(scheduler, 1);
}

static void barrier(const char* file, int line) {
    fibers[threadIdx.x].file = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    fibers[threadIdx.x].line = line;
    give_way();
}

// Filled with ones (NaN), as a GPU promises no zeros either.
static void make(Shared& array, size_t bytes) {
    array.bytes = bytes;
    array.memory = (char*)aligned_alloc(64, (bytes + 2 * GUARD + 63) / 64 * 64);
    memset(array.memory, 0xA5, GUARD);
    memset(array.memory + GUARD, 0xFF, bytes);
    memset(array.memory + GUARD + bytes, 0xA5, GUARD);
}

static bool intact(const Shared& array) {
    for (size_t i = 0; array.memory && i < GUARD; i++)
        if (array.memory[i] != (char)0xA5 || array.memory[GUARD + array.bytes + i] != (char)0xA5) return false;
    return true;
}

static void clear(Shared& array) {
    free(array.memory);
    array.memory = nullptr;
}

static void* shared_array(int site, unsigned long bytes) {
    if (!shared[site].memory) make(shared[site], bytes);
    return shared[site].memory + GUARD;
}

static void* shared_tile(unsigned long bytes) {
    if (bytes > tile.bytes) {
        failed = true;
        snprintf(message, sizeof message, "the kernel uses %lu bytes of dynamic shared memory; launched with %zu", bytes,
                 tile.bytes);
        give_way();
    }
    return tile.memory + GUARD;
}

template <int... I>
struct Places {};
template <int N, int... I>
struct FirstPlaces : FirstPlaces<N - 1, N - 1, I...> {};
template <int... I>
struct FirstPlaces<0, I...> {
    typedef Places<I...> type;
};
template <class... A, int... I>
static void call(void (*function)(A...), Places<I...>) {
    function(*(A*)parameters[I]...);
}
template <class... A>
static void call(void (*function)(A...)) {
    call(function, typename FirstPlaces<sizeof...(A)>::type());
}
template <class... A>
static bool fits(void (*)(A...), const int* sizes, int count) {
    const int wanted[] = {(int)sizeof(A)...};
    if (count != (int)sizeof...(A)) {
        snprintf(message, sizeof message, "the kernel takes %d parameters; launched with %d", (int)sizeof...(A), count);
        return false;
    }
    for (int i = 0; i < count; i++)
        if (sizes[i] != wanted[i]) {
            snprintf(message, sizeof message, "parameter %d has %d bytes; launched with %d", i, wanted[i], sizes[i]);
            return false;
        }
    return true;
}

static void live() {
    for (;;) {
        call(kernel);
        fibers[threadIdx.x].ended = true;
        give_way();
    }
}

static void resume(int thread) {
    Fiber& fiber = fibers[thread];
    threadIdx.x = thread;
    if (_setjmp(scheduler)) return;
    if (fiber.begun) _longjmp(fiber.context, 1);
    fiber.begun = true;
    if (!fiber.stack) fiber.stack = (char*)malloc(STACK);
    static ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = fiber.stack;
    start.uc_stack.ss_size = STACK;
    start.uc_link = nullptr;
    makecontext(&start, live, 0);
    setcontext(&start);
}

// Whether all threads are done, or wait at one barrier.
static bool together(int threads, bool& done) {
    const Fiber& first = fibers[0];
    done = first.ended;
    for (int t = 1; t < threads && !failed; t++)
        if (fibers[t].ended != first.ended ||
            (!done && (fibers[t].line != first.line || strcmp(fibers[t].file, first.file) != 0))) {
            const Fiber& waiting = first.ended ? fibers[t] : first;
            snprintf(message, sizeof message, "not all threads of block %d reach the barrier at %s:%d", blockIdx.x,
                     waiting.file, waiting.line);
            failed = true;
        }
    return !failed;
}

// From a barrier to the next the threads run one after the other, up and down in turn: who needs a barrier that is not
// there reads in one of the two orders what has not been written.
static void run_block(int threads) {
    bool done = false;
    for (int t = 0; t < threads; t++) fibers[t].ended = false;
    for (int round = 0; !done; round++) {
        for (int t = 0; t < threads && !failed; t++) resume(round % 2 ? threads - 1 - t : t);
        if (failed || !together(threads, done)) break;
    }
    bool whole = intact(tile);
    for (const Shared& array : shared) whole = whole && intact(array);
    if (!failed && !whole) {
        snprintf(message, sizeof message, "block %d writes beside its shared memory", blockIdx.x);
        failed = true;
    }
}

// One launch; what went wrong, or nullptr.
extern "C" const char* launch(int blocks, int threads, int bytes, void* const* values, const int* sizes, int count) {
    if (!fits(kernel, sizes, count)) return message;
    parameters = values;
    gridDim.x = blocks;
    blockDim.x = threads;
    failed = false;
    for (int b = 0; b < blocks && !failed; b++) {
        blockIdx.x = b;
        make(tile, bytes);
        run_block(threads);
        clear(tile);
        for (Shared& array : shared) clear(array);
    }
    if (!failed) return nullptr;
    for (Fiber& fiber : fibers) fiber.begun = false;  // they still stand in the midst of the kernel
    return message;
}
