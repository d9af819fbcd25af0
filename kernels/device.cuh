// What a block, a thread and shared memory are. The only file that knows which machine it is compiled for.
//
// A kernel is a block-stride program: it is right for every blockDim, 1 included. On a GPU a block is a CUDA
// block; on a host it is one task of a parallel loop with a single thread, and a barrier is nothing. With LS_EMULATE a
// host runs the GPU's form: a thread of the system for each CUDA thread (kernels/emulator.cpp), or with LS_FIBERS all of
// them in one (kernels/emulated.cpp). SHARED and SHARED_TILE (floats, on a cache line; as many as need be, so on a GPU
// the launch says how many) stand at the top of a kernel. IN_REGISTERS stands before a loop whose counter is an index of a
// small array: a GPU then has it in registers; a host is not to compile it over and over. ROLLED stands before one of
// which a GPU's compiler is not to make copies either.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

constexpr bool ON_DEVICE = true;
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define SHARED(type, name, count) __shared__ type name[count]
#define SHARED_TILE(name, count)              \
    extern __shared__ float4 shared_tile_[]; \
    float* name = (float*)shared_tile_
#define BARRIER() __syncthreads()
#define UNROLL _Pragma("unroll")
#define UNROLL_TWICE _Pragma("unroll 2")
#define IN_REGISTERS _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

DEVICE float as_float(unsigned bits) { return __uint_as_float(bits); }
DEVICE unsigned as_bits(float value) { return __float_as_uint(value); }
DEVICE float fused_multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE float square_root(float a) { return __fsqrt_rn(a); }
DEVICE unsigned multiply_high(unsigned a, unsigned b) { return __umulhi(a, b); }
DEVICE long long ticks() { return clock64(); }
DEVICE long long nanoseconds() {
    long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

#else

#include <time.h>

#ifndef __OPTIMIZE__  // a call is a third of the work for the compiler
#define DEVICE static inline
#define DEVICE_MEMBER inline
#else
#define DEVICE static inline __attribute__((always_inline))
#define DEVICE_MEMBER inline __attribute__((always_inline))
#endif
#define KERNEL static void

struct Index {
    int x;
};
#ifdef LS_FIBERS
#define OF_THREAD static
#else
#define OF_THREAD static thread_local
#endif
OF_THREAD Index blockIdx{0};
OF_THREAD Index gridDim{1};
#ifdef LS_EMULATE
constexpr bool ON_DEVICE = true;
OF_THREAD Index threadIdx{0};
OF_THREAD Index blockDim{1};
static void* shared_array(int site, unsigned long bytes);
static void* shared_tile(unsigned long bytes);
static void barrier(const char* file, int line);
#define SHARED(type, name, count) type(&name)[count] = *(type(*)[count])shared_array(__COUNTER__, sizeof(type[count]))
#define SHARED_TILE(name, count) float* name = (float*)shared_tile(sizeof(float) * (count))
#define BARRIER() barrier(__FILE__, __LINE__)
#else
constexpr bool ON_DEVICE = false;
constexpr Index threadIdx{0};
constexpr Index blockDim{1};
#define SHARED(type, name, count) type name[count]
#define SHARED_TILE(name, count) alignas(64) float name[count]
#define BARRIER()
#endif
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_TWICE _Pragma("GCC unroll 2")
#define IN_REGISTERS
#define ROLLED

DEVICE float as_float(unsigned bits) {
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
DEVICE unsigned as_bits(float value) {
    unsigned bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}
DEVICE float fused_multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float square_root(float a) { return __builtin_sqrtf(a); }
DEVICE unsigned multiply_high(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
// A counter that runs evenly, in a unit of its own.
DEVICE long long ticks() {
#if defined(__x86_64__)
    return (long long)__builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    long long count;
    asm volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return 0;
#endif
}
// A clock that runs evenly.
DEVICE long long nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

#endif

// This block's threads share the indices [begin, end).
#define BLOCK_FOR(i, begin, end) for (int i = (begin) + (int)threadIdx.x; i < (end); i += (int)blockDim.x)

// The share of this block of n indices: contiguous, so that a host core walks memory in order.
struct Range {
    int begin, end;
};
DEVICE Range share_of(int part, int parts, int n) {
    const int each = n / parts, rest = n % parts;
    const int begin = part * each + (part < rest ? part : rest);
    return Range{begin, begin + each + (part < rest ? 1 : 0)};
}
DEVICE Range block_share(int n) { return share_of((int)blockIdx.x, (int)gridDim.x, n); }

// A block's sum runs in LANES chains, lane l over the elements l, l + LANES, ... in order, and the chains are added
// in order: the result depends neither on blockDim nor on timing.
constexpr int LANES = 32;
