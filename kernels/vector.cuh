// A vector of floats, one IEEE 754 operation a lane: the only text that differs by instruction set.
//
// `vec` holds VECTOR floats: 16, 8 or 4 on a host, 4 on a GPU and on the emulated device, where it is a struct that
// moves as one 128-bit word. Mathematics is written once, on a type that is `float` or `vec`: operators, `select`,
// `fused_multiply_add`, `square_root`, `as_bits` and `as_float` are there for both. No result depends on VECTOR, since
// no lane ever meets another one: a lane's sum is a chain over its own terms. LS_VECTOR sets another width, for tests.
#pragma once
#include "device.cuh"

#if defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(LS_EMULATE)

constexpr int VECTOR = 4;
struct alignas(16) vec {
    float lane[4];
};
struct alignas(16) ivec {
    int lane[4];
};
struct alignas(16) uvec {
    unsigned lane[4];
};

#define EACH_LANE(result, expression)             \
    {                                             \
        result r;                                 \
        _Pragma("unroll") for (int l = 0; l < 4; l++) r.lane[l] = expression; \
        return r;                                 \
    }
#define LANE_OPERATOR(type, op)                                                              \
    DEVICE type operator op(type a, type b) EACH_LANE(type, a.lane[l] op b.lane[l])          \
    DEVICE type operator op(type a, decltype(a.lane[0] + 0) b) EACH_LANE(type, a.lane[l] op b) \
    DEVICE type operator op(decltype(type{}.lane[0] + 0) a, type b) EACH_LANE(type, a op b.lane[l])
LANE_OPERATOR(vec, +)
LANE_OPERATOR(vec, -)
LANE_OPERATOR(vec, *)
LANE_OPERATOR(vec, /)
LANE_OPERATOR(uvec, +)
LANE_OPERATOR(uvec, -)
LANE_OPERATOR(uvec, *)
LANE_OPERATOR(uvec, &)
LANE_OPERATOR(uvec, |)
LANE_OPERATOR(uvec, ^)
LANE_OPERATOR(uvec, <<)
LANE_OPERATOR(uvec, >>)
LANE_OPERATOR(ivec, >>)
LANE_OPERATOR(ivec, |)
LANE_OPERATOR(ivec, &)
DEVICE vec operator-(vec a) EACH_LANE(vec, -a.lane[l])
#define LANE_COMPARISON(type, op)                                                                 \
    DEVICE ivec operator op(type a, type b) EACH_LANE(ivec, -(a.lane[l] op b.lane[l]))            \
    DEVICE ivec operator op(type a, decltype(a.lane[0] + 0) b) EACH_LANE(ivec, -(a.lane[l] op b)) \
    DEVICE ivec operator op(decltype(type{}.lane[0] + 0) a, type b) EACH_LANE(ivec, -(a op b.lane[l]))
LANE_COMPARISON(vec, <)
LANE_COMPARISON(vec, >)
LANE_COMPARISON(ivec, ==)
LANE_COMPARISON(ivec, >=)
LANE_COMPARISON(uvec, ==)
LANE_COMPARISON(uvec, >=)

DEVICE vec splat(float a) EACH_LANE(vec, a)
DEVICE uvec splat(unsigned a) EACH_LANE(uvec, a)
DEVICE vec select(ivec mask, vec a, vec b) EACH_LANE(vec, mask.lane[l] ? a.lane[l] : b.lane[l])
DEVICE uvec select(ivec mask, uvec a, uvec b) EACH_LANE(uvec, mask.lane[l] ? a.lane[l] : b.lane[l])
DEVICE vec fused_multiply_add(vec a, vec b, vec c) EACH_LANE(vec, fused_multiply_add(a.lane[l], b.lane[l], c.lane[l]))
DEVICE vec clamp(vec a, float low, float high)
    EACH_LANE(vec, a.lane[l] < low ? low : a.lane[l] > high ? high : a.lane[l])
DEVICE vec square_root(vec a) EACH_LANE(vec, square_root(a.lane[l]))
DEVICE uvec as_bits(vec a) EACH_LANE(uvec, as_bits(a.lane[l]))
DEVICE vec as_float(uvec a) EACH_LANE(vec, as_float(a.lane[l]))
DEVICE ivec as_int(uvec a) EACH_LANE(ivec, (int)a.lane[l])
DEVICE uvec as_unsigned(ivec a) EACH_LANE(uvec, (unsigned)a.lane[l])
DEVICE vec to_float(ivec a) EACH_LANE(vec, (float)a.lane[l])
DEVICE unsigned lane(uvec a, int l) { return a.lane[l]; }
DEVICE bool any(ivec mask) { return mask.lane[0] | mask.lane[1] | mask.lane[2] | mask.lane[3]; }
DEVICE vec load(const float* p) { return *(const vec*)p; }
DEVICE void store(float* p, vec a) { *(vec*)p = a; }
DEVICE ivec load(const int* p) { return *(const ivec*)p; }
DEVICE vec load_anywhere(const float* p) { return vec{{p[0], p[1], p[2], p[3]}}; }
DEVICE void store_anywhere(float* p, vec a) {
    for (int l = 0; l < 4; l++) p[l] = a.lane[l];
}
DEVICE void store_anywhere(int* p, uvec a) {
    for (int l = 0; l < 4; l++) p[l] = (int)a.lane[l];
}
DEVICE uvec counting(unsigned first) { return uvec{{first, first + 1, first + 2, first + 3}}; }
// (a0 b0 a1 b1), (a2 b2 a3 b3)
DEVICE void interleave(vec& a, vec& b) {
    const vec low{{a.lane[0], b.lane[0], a.lane[1], b.lane[1]}}, high{{a.lane[2], b.lane[2], a.lane[3], b.lane[3]}};
    a = low;
    b = high;
}

#else

#if defined(LS_VECTOR)
#elif defined(__AVX512F__)
#define LS_VECTOR 16
#elif defined(__AVX__)
#define LS_VECTOR 8
#else
#define LS_VECTOR 4
#endif
constexpr int VECTOR = LS_VECTOR;
#pragma GCC diagnostic ignored "-Wpsabi"  // a width beyond the machine's: nothing is called across units
#if defined(__FMA__) && defined(__clang__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

typedef float vec __attribute__((vector_size(4 * VECTOR), may_alias));
typedef int ivec __attribute__((vector_size(4 * VECTOR), may_alias));
typedef unsigned uvec __attribute__((vector_size(4 * VECTOR), may_alias));
typedef float unaligned_vec __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));
typedef unsigned unaligned_uvec __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));

DEVICE vec splat(float a) { return a - vec{}; }  // not vec{} + a, which would make -0 of it +0
DEVICE uvec splat(unsigned a) { return a + uvec{}; }
DEVICE vec select(ivec mask, vec a, vec b) { return mask ? a : b; }
DEVICE uvec select(ivec mask, uvec a, uvec b) { return mask ? a : b; }
DEVICE uvec as_bits(vec a) { return (uvec)a; }
DEVICE vec as_float(uvec a) { return (vec)a; }
DEVICE ivec as_int(uvec a) { return (ivec)a; }
DEVICE uvec as_unsigned(ivec a) { return (uvec)a; }
DEVICE vec to_float(ivec a) { return __builtin_convertvector(a, vec); }
DEVICE unsigned lane(uvec a, int l) { return a[l]; }
DEVICE bool any(ivec mask) {
    int found = 0;
    for (int l = 0; l < VECTOR; l++) found |= mask[l];
    return found;
}
DEVICE vec load(const float* p) { return *(const vec*)p; }
DEVICE void store(float* p, vec a) { *(vec*)p = a; }
DEVICE ivec load(const int* p) { return *(const ivec*)p; }
DEVICE vec load_anywhere(const float* p) { return *(const unaligned_vec*)p; }
DEVICE void store_anywhere(float* p, vec a) { *(unaligned_vec*)p = a; }
DEVICE void store_anywhere(int* p, uvec a) { *(unaligned_uvec*)p = a; }
DEVICE uvec counting(unsigned first) {
    uvec r;
    for (int l = 0; l < VECTOR; l++) r[l] = first + (unsigned)l;
    return r;
}
template <int... L>
struct Lanes {};
template <int N, int... L>
struct FirstLanes : FirstLanes<N - 1, N - 1, L...> {};
template <int... L>
struct FirstLanes<0, L...> {
    typedef Lanes<L...> type;
};
template <int... L>
DEVICE_MEMBER void interleave(vec& a, vec& b, Lanes<L...>) {
    const vec low = __builtin_shufflevector(a, b, (L / 2 + (L % 2) * VECTOR)...);
    const vec high = __builtin_shufflevector(a, b, (L / 2 + VECTOR / 2 + (L % 2) * VECTOR)...);
    a = low;
    b = high;
}
// (a0 b0 a1 b1 ...), and the same of the upper halves
DEVICE void interleave(vec& a, vec& b) { interleave(a, b, FirstLanes<VECTOR>::type{}); }

// One instruction where the machine has it; other widths go lane by lane, with the same result. g++ gets builtins: its
// immintrin.h takes longer to read than a kernel to compile.
DEVICE vec fused_multiply_add(vec a, vec b, vec c) {
#if LS_VECTOR == 4 && defined(__ARM_NEON)
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#elif LS_VECTOR == 16 && defined(__AVX512F__) && defined(__clang__)
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif LS_VECTOR == 16 && defined(__AVX512F__)
    return __builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4);  // rounding as it is set
#elif LS_VECTOR == 8 && defined(__FMA__) && defined(__clang__)
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif LS_VECTOR == 8 && defined(__FMA__)
    return __builtin_ia32_vfmaddps256(a, b, c);
#elif LS_VECTOR == 4 && defined(__FMA__) && defined(__clang__)
    return (vec)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#elif LS_VECTOR == 4 && defined(__FMA__)
    return __builtin_ia32_vfmaddps(a, b, c);
#else
    vec r;
    for (int l = 0; l < VECTOR; l++) r[l] = __builtin_fmaf(a[l], b[l], c[l]);
    return r;
#endif
}
// Between low and high; NaN stays NaN.
DEVICE vec clamp(vec a, float low, float high) {
#if LS_VECTOR == 16 && defined(__AVX512F__) && defined(__clang__)
    return (vec)_mm512_min_ps(_mm512_set1_ps(high), _mm512_max_ps(_mm512_set1_ps(low), (__m512)a));
#elif LS_VECTOR == 16 && defined(__AVX512F__)
    const vec above = __builtin_ia32_maxps512_mask(splat(low), a, a, (unsigned short)-1, 4);
    return __builtin_ia32_minps512_mask(splat(high), above, above, (unsigned short)-1, 4);
#elif LS_VECTOR == 8 && defined(__AVX__)
    return __builtin_ia32_minps256(splat(high), __builtin_ia32_maxps256(splat(low), a));
#else
    a = select(a < low, splat(low), a);
    return select(a > high, splat(high), a);
#endif
}
DEVICE vec square_root(vec a) {
    vec r;
    for (int l = 0; l < VECTOR; l++) r[l] = __builtin_sqrtf(a[l]);
    return r;
}

#endif

DEVICE float select(bool condition, float a, float b) { return condition ? a : b; }
DEVICE vec select(ivec mask, vec a, float b) { return select(mask, a, splat(b)); }
DEVICE vec select(ivec mask, float a, vec b) { return select(mask, splat(a), b); }
DEVICE float clamp(float a, float low, float high) { return a < low ? low : a > high ? high : a; }
DEVICE int as_int(unsigned bits) { return (int)bits; }
DEVICE float to_float(int a) { return (float)a; }
DEVICE vec fused_multiply_add(vec a, vec b, float c) { return fused_multiply_add(a, b, splat(c)); }
DEVICE vec fused_multiply_add(vec a, float b, float c) { return fused_multiply_add(a, splat(b), splat(c)); }
DEVICE vec fused_multiply_add(vec a, float b, vec c) { return fused_multiply_add(a, splat(b), c); }
DEVICE vec fused_multiply_add(float a, vec b, float c) { return fused_multiply_add(splat(a), b, splat(c)); }
DEVICE vec fused_multiply_add(float a, vec b, vec c) { return fused_multiply_add(splat(a), b, c); }

// The integers that go with F: int with float, ivec with vec.
template <class F>
struct IntegerOf {
    typedef int type;
};
template <>
struct IntegerOf<vec> {
    typedef ivec type;
};
template <class F>
using Integer = typename IntegerOf<F>::type;

// The number a, as a float or in every lane.
template <class F>
DEVICE_MEMBER F all(float a);
template <>
DEVICE_MEMBER float all<float>(float a) {
    return a;
}
template <>
DEVICE_MEMBER vec all<vec>(float a) {
    return splat(a);
}
