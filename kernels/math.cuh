// exp, log, sin and cos from operations that IEEE 754 fixes, so that a result has the same bits on every machine.
// Polynomials: S. Moshier's Cephes library (single precision); argument reduction: Cody and Waite. Worst errors,
// measured by tests/kernels/test_math.py: exp 1.1 ulp, log 0.9 ulp, sin and cos 1e-7 absolute for |x| < 8000.
#pragma once
#include "device.cuh"

constexpr float ROUNDING_MAGIC = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits

// e^x. Below -87.33 and above 88.37 x is clamped: the result stays a normal number, never 0 or infinity. NaN stays NaN.
DEVICE float exp_(float x) {
    x = x < -87.33f ? -87.33f : x;
    x = x > 88.37f ? 88.37f : x;
    const float shifted = fused_multiply_add(x, 1.44269504f, ROUNDING_MAGIC);
    const float n = shifted - ROUNDING_MAGIC;
    float r = fused_multiply_add(n, -0.693359375f, x);
    r = fused_multiply_add(n, 2.12194440e-4f, r);
    float p = fused_multiply_add(1.9875691500e-4f, r, 1.3981999507e-3f);
    p = fused_multiply_add(p, r, 8.3334519073e-3f);
    p = fused_multiply_add(p, r, 4.1665795894e-2f);
    p = fused_multiply_add(p, r, 1.6666665459e-1f);
    p = fused_multiply_add(p, r, 5.0000001201e-1f);
    p = fused_multiply_add(p, r * r, r) + 1.0f;
    return as_float(as_bits(p) + (as_bits(shifted) << 23));
}

// Natural logarithm of a positive normal number.
DEVICE float log_(float x) {
    const unsigned SQRT_HALF = 0x3f3504f3u;
    const unsigned offset = as_bits(x) - SQRT_HALF;
    const int exponent = (int)offset >> 23;
    const float f = as_float((offset & 0x7fffffu) + SQRT_HALF) - 1.0f;
    const float e = (float)exponent;
    const float z = f * f;
    float p = fused_multiply_add(7.0376836292e-2f, f, -1.1514610310e-1f);
    p = fused_multiply_add(p, f, 1.1676998740e-1f);
    p = fused_multiply_add(p, f, -1.2420140846e-1f);
    p = fused_multiply_add(p, f, 1.4249322787e-1f);
    p = fused_multiply_add(p, f, -1.6668057665e-1f);
    p = fused_multiply_add(p, f, 2.0000714765e-1f);
    p = fused_multiply_add(p, f, -2.4999993993e-1f);
    p = fused_multiply_add(p, f, 3.3333331174e-1f);
    float y = f * z * p;
    y = fused_multiply_add(e, -2.12194440e-4f, y);
    y = fused_multiply_add(-0.5f, z, y);
    return fused_multiply_add(e, 0.693359375f, f + y);
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
