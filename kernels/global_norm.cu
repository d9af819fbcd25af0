// The gradient's global norm and the factor that clips it (Pascanu et al., arXiv:1211.5063), as torch's
// clip_grad_norm_: scale = min(1, max_norm / (norm + 1e-6)). Two kernels: each block's sum of squares, then all of them.
#include "device.cuh"

KERNEL squares(const float* gradient,  // (n)
               float* partials,        // (P)
               int n, int P) {
    SHARED(float, sums, LANES);
    const Range share = block_share(n);
    BLOCK_FOR(lane, 0, LANES) {
        float sum = 0.0f;
        for (int i = share.begin + lane; i < share.end; i += LANES) sum = fused_multiply_add(gradient[i], gradient[i], sum);
        sums[lane] = sum;
    }
    BARRIER();
    BLOCK_FOR(only, 0, 1) {
        float sum = 0.0f;
        for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
        partials[blockIdx.x] = sum;
    }
}

KERNEL clip_scale(const float* partials,  // (P)
                  float* norm,            // (1), before clipping
                  float* scale,           // (1)
                  int P, float max_norm) {
    BLOCK_FOR(only, 0, 1) {
        float sum = 0.0f;
        for (int p = 0; p < P; p++) sum += partials[p];
        norm[0] = square_root(sum);
        const float wanted = max_norm / (norm[0] + 1e-6f);
        scale[0] = wanted < 1.0f ? wanted : 1.0f;
    }
}
