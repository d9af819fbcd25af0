// The mathematics of math.cuh and philox.cuh, value by value.
#include "philox.cuh"

KERNEL math_probe(const float* x,  // (N)
                  float* exp,      // (N)
                  float* log,      // (N)
                  float* sin,      // (N)
                  float* cos,      // (N)
                  float* normal,   // (N, 2), from the words (bits of x[n], bits of x[N - 1 - n])
                  int N) {
    const Range share = block_share(N);
    BLOCK_FOR(n, share.begin, share.end) {
        exp[n] = exp_(x[n]);
        log[n] = log_(x[n]);
        const SinCos angle = sincos_(x[n]);
        sin[n] = angle.sin;
        cos[n] = angle.cos;
        const NormalPair pair = normal_pair(as_bits(x[n]), as_bits(x[N - 1 - n]));
        normal[2 * n] = pair.first;
        normal[2 * n + 1] = pair.second;
    }
}
