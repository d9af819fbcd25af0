// exp, log, tanh, sin and cos from operations that IEEE 754 fixes, so that a result has the same bits on every machine;
// F is float or vec. Polynomials: S. Moshier's Cephes library (single precision); argument reduction: Cody and Waite;
// tanh: a rational minimax approximation of degree 9 over 8. Worst errors, measured by tests/kernels/test_math.py:
// exp 1.1 ulp, log 0.9 ulp, tanh 5 ulp, sin and cos 1e-7 absolute for |x| < 8000. Denormals are kept.
#pragma once
#include "vector.cuh"

constexpr float ROUNDING_MAGIC = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits

// e^x. Below -87.33 and above 88.37 x is clamped: the result stays a normal number, never 0 or infinity. NaN stays NaN.
template <class F>
DEVICE_MEMBER F exp_(F x) {
    x = clamp(x, -87.33f, 88.37f);
    const F shifted = fused_multiply_add(x, 1.44269504f, ROUNDING_MAGIC);
    const F n = shifted - ROUNDING_MAGIC;
    F r = fused_multiply_add(n, -0.693359375f, x);
    r = fused_multiply_add(n, 2.12194440e-4f, r);
    F p = fused_multiply_add(1.9875691500e-4f, r, 1.3981999507e-3f);
    p = fused_multiply_add(p, r, 8.3334519073e-3f);
    p = fused_multiply_add(p, r, 4.1665795894e-2f);
    p = fused_multiply_add(p, r, 1.6666665459e-1f);
    p = fused_multiply_add(p, r, 5.0000001201e-1f);
    p = fused_multiply_add(p, r * r, r) + 1.0f;
    return as_float(as_bits(p) + (as_bits(shifted) << 23u));
}

// Natural logarithm of a positive normal number.
template <class F>
DEVICE_MEMBER F log_(F x) {
    const unsigned SQRT_HALF = 0x3f3504f3u;
    const auto offset = as_bits(x) - SQRT_HALF;
    const auto exponent = as_int(offset) >> 23;
    const F f = as_float((offset & 0x7fffffu) + SQRT_HALF) - 1.0f;
    const F e = to_float(exponent);
    const F z = f * f;
    F p = fused_multiply_add(7.0376836292e-2f, f, -1.1514610310e-1f);
    p = fused_multiply_add(p, f, 1.1676998740e-1f);
    p = fused_multiply_add(p, f, -1.2420140846e-1f);
    p = fused_multiply_add(p, f, 1.4249322787e-1f);
    p = fused_multiply_add(p, f, -1.6668057665e-1f);
    p = fused_multiply_add(p, f, 2.0000714765e-1f);
    p = fused_multiply_add(p, f, -2.4999993993e-1f);
    p = fused_multiply_add(p, f, 3.3333331174e-1f);
    F y = f * z * p;
    y = fused_multiply_add(e, -2.12194440e-4f, y);
    y = fused_multiply_add(-0.5f, z, y);
    return fused_multiply_add(e, 0.693359375f, f + y);
}

// Hyperbolic tangent: beyond |x| = 7.9 it stays 0.99999976. NaN stays NaN. The two constant terms are one number, so
// that small x, denormals too, come back as they are.
template <class F>
DEVICE_MEMBER F tanh_(F x) {
    x = clamp(x, -7.9f, 7.9f);
    const F z = x * x;
    F p = fused_multiply_add(0.017942072823643684f, z, 25.612030029296875f);
    p = fused_multiply_add(p, z, 4162.1982421875f);
    p = fused_multiply_add(p, z, 156424.234375f);
    p = fused_multiply_add(p, z, 1162951.625f);
    F q = z + 398.15460205078125f;
    q = fused_multiply_add(q, z, 30460.318359375f);
    q = fused_multiply_add(q, z, 544074.6875f);
    q = fused_multiply_add(q, z, 1162951.625f);
    return p * x / q;
}

struct SinCos {
    float sin, cos;
};
// Sine and cosine of an angle in radians, |x| < 8000.
DEVICE SinCos sincos_(float x) {
    const float shifted = fused_multiply_add(x, 0.636619772f, ROUNDING_MAGIC);
    const float n = shifted - ROUNDING_MAGIC;
    const unsigned quadrant = as_bits(shifted);
    float r = fused_multiply_add(n, -1.57079625f, x);
    r = fused_multiply_add(n, -7.54978942e-08f, r);
    r = fused_multiply_add(n, -5.39030253e-15f, r);
    const float z = r * r;
    float s = fused_multiply_add(-1.9515295891e-4f, z, 8.3321608736e-3f);
    s = fused_multiply_add(s, z, -1.6666654611e-1f);
    s = fused_multiply_add(s * z, r, r);
    float c = fused_multiply_add(2.443315711809948e-5f, z, -1.388731625493765e-3f);
    c = fused_multiply_add(c, z, 4.166664568298827e-2f);
    c = fused_multiply_add(c * z, z, fused_multiply_add(-0.5f, z, 1.0f));
    const bool odd = quadrant & 1u;
    const float sine = odd ? c : s, cosine = odd ? s : c;
    return SinCos{as_float(as_bits(sine) ^ ((quadrant & 2u) << 30)),
                  as_float(as_bits(cosine) ^ (((quadrant + 1u) & 2u) << 30))};
}
