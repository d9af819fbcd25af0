// What normalizes a minibatch's advantages: shift = (mean, 1 / (standard deviation + 1e-8)), the deviation with B - 1 as
// in CleanRL. One sample has no deviation: it passes as it is, shift = (0, 1). A block does a minibatch.
#include "device.cuh"

KERNEL advantage_shift(const float* advantage,  // (M)
                       const int* indices,      // (K, B) rows of the rollout
                       float* shifts,           // (K, 2)
                       int B) {
    const int* index = indices + (long long)blockIdx.x * B;
    float* shift = shifts + 2 * blockIdx.x;
    SHARED(float, sums, LANES);
    SHARED(float, mean, 1);
    BLOCK_FOR(lane, 0, LANES) {
        float sum = 0.0f;
        for (int b = lane; b < B; b += LANES) sum += advantage[index[b]];
        sums[lane] = sum;
    }
    BARRIER();
    BLOCK_FOR(only, 0, 1) {
        float sum = 0.0f;
        for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
        mean[0] = sum / (float)B;
    }
    BARRIER();
    BLOCK_FOR(lane, 0, LANES) {
        float sum = 0.0f;
        for (int b = lane; b < B; b += LANES) {
            const float d = advantage[index[b]] - mean[0];
            sum = fused_multiply_add(d, d, sum);
        }
        sums[lane] = sum;
    }
    BARRIER();
    BLOCK_FOR(only, 0, 1) {
        float sum = 0.0f;
        for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
        shift[0] = B > 1 ? mean[0] : 0.0f;
        shift[1] = B > 1 ? 1.0f / (square_root(sum / (float)(B - 1)) + 1e-8f) : 1.0f;
    }
}
