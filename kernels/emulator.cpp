// Runs one launch of a kernel as a GPU would: a thread of the system for each CUDA thread, all blocks at once, barriers
// and shared memory real. kernels/emulator.py puts the kernel, `ARGUMENTS` and `call` in front of this text.
//
// Usage: program <input> <output> <blocks> <threads a block> [<file> <line> of a barrier to leave out]. Either file holds, for each argument, its size in bytes
// (8 bytes) and its bytes; the output holds the arguments as the kernel left them.
#include <pthread.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

constexpr int MAX_SHARED = 8;

struct Block {
    pthread_barrier_t barriers[2];  // taken in turn: a thread that reaches the next one must not seem ordered before one
                                    // that still leaves the last
    pthread_mutex_t mutex;
    void* shared[MAX_SHARED];
};
struct Thread {
    pthread_t handle;
    Block* block;
    Index block_index, blocks, index, threads;
};
static thread_local Block* own_block;
static thread_local int turn = 0;
static void* arguments[ARGUMENTS];
static size_t sizes[ARGUMENTS];

static void check(bool fine, const char* what) {
    if (fine) return;
    fprintf(stderr, "emulator: %s failed\n", what);
    exit(3);
}

static const char* left_out_file = "";
static int left_out_line = 0;

static void barrier(const char* file, int line) {
    if (line == left_out_line && strcmp(strrchr(file, '/') ? strrchr(file, '/') + 1 : file, left_out_file) == 0) return;
    pthread_barrier_wait(&own_block->barriers[turn]);
    turn = 1 - turn;
}

// The block's array of one SHARED, made by the first thread that comes: on the heap, of exactly the declared size, and
// filled with ones (NaN), as a GPU promises no zeros either.
static void* shared_array(int site, unsigned long bytes) {
    check(site < MAX_SHARED, "counting shared arrays");
    pthread_mutex_lock(&own_block->mutex);
    void*& array = own_block->shared[site];
    if (!array) {
        array = malloc(bytes);
        memset(array, 255, bytes);
    }
    pthread_mutex_unlock(&own_block->mutex);
    return array;
}

static void* shared_tile(unsigned long bytes) { return shared_array(MAX_SHARED - 1, bytes); }

static void* run_thread(void* context) {
    const Thread* thread = (const Thread*)context;
    own_block = thread->block;
    blockIdx = thread->block_index;
    gridDim = thread->blocks;
    threadIdx = thread->index;
    blockDim = thread->threads;
    call(arguments);
    return nullptr;
}

int main(int count, char** argv) {
    const int blocks = atoi(argv[3]), threads = atoi(argv[4]);
    if (count > 6) {
        left_out_file = argv[5];
        left_out_line = atoi(argv[6]);
    }
    FILE* input = fopen(argv[1], "rb");
    check(input, "reading");
    for (int i = 0; i < ARGUMENTS; i++) {
        check(fread(&sizes[i], 8, 1, input) == 1, "reading a size");
        arguments[i] = malloc(sizes[i]);
        check(fread(arguments[i], 1, sizes[i], input) == sizes[i], "reading an argument");
    }
    fclose(input);

    Block* block = (Block*)calloc(blocks, sizeof(Block));
    Thread* thread = (Thread*)calloc(blocks * threads, sizeof(Thread));
    for (int b = 0; b < blocks; b++) {
        for (pthread_barrier_t& barrier : block[b].barriers) pthread_barrier_init(&barrier, nullptr, threads);
        pthread_mutex_init(&block[b].mutex, nullptr);
    }
    for (int i = 0; i < blocks * threads; i++) {
        Thread& t = thread[i];
        t.block = block + i / threads;
        t.block_index = Index{i / threads};
        t.blocks = Index{blocks};
        t.index = Index{i % threads};
        t.threads = Index{threads};
        check(pthread_create(&t.handle, nullptr, run_thread, &t) == 0, "starting a thread");
    }
    for (int i = 0; i < blocks * threads; i++) pthread_join(thread[i].handle, nullptr);

    FILE* output = fopen(argv[2], "wb");
    check(output, "writing");
    for (int i = 0; i < ARGUMENTS; i++) {
        check(fwrite(&sizes[i], 8, 1, output) == 1, "writing a size");
        check(fwrite(arguments[i], 1, sizes[i], output) == sizes[i], "writing an argument");
    }
    check(fclose(output) == 0, "writing");
}
