// The yardstick of what a processor can multiply and add: chains of fused multiply-adds that never leave the registers.
#include "vector.cuh"

// At once: enough to hide the latency of two units, and few enough for 16 registers.
constexpr int CHAINS = 12;
constexpr int GROUP = CHAINS * VECTOR;

template <class F>
DEVICE_MEMBER void next(F& x, float factor, float offset) {
    x = fused_multiply_add(x, factor, offset);
}

KERNEL fma_peak(float* x,  // (n), each replaced `rounds` times by x * factor + offset
                int n, int rounds, float factor, float offset) {
    const Range share = block_share(n);
    const int groups = (share.end - share.begin) / GROUP;
    BLOCK_FOR(g, 0, groups) {
        float* own = x + share.begin + g * GROUP;
        vec chain[CHAINS];
        UNROLL for (int c = 0; c < CHAINS; c++) chain[c] = load_anywhere(own + c * VECTOR);
        for (int r = 0; r < rounds; r++)
            UNROLL for (int c = 0; c < CHAINS; c++) next(chain[c], factor, offset);
        UNROLL for (int c = 0; c < CHAINS; c++) store_anywhere(own + c * VECTOR, chain[c]);
    }
    BLOCK_FOR(i, share.begin + groups * GROUP, share.end)
        for (int r = 0; r < rounds; r++) next(x[i], factor, offset);
}
