// What normalizes a minibatch's advantages: shift = (mean, 1 / (standard deviation + 1e-8)), the deviation with B - 1 as
// in CleanRL. One sample has no deviation: it passes as it is, shift = (0, 1). A block does a minibatch.
#include "device.cuh"

constexpr int STAGE = 64 * LANES;  // samples that all threads gather together before the chains go over them

// sums[lane] = the chain of `add` over the lane's samples of the minibatch.
template <class Add>
DEVICE_MEMBER void chains(const float* advantage, const int* index, int B, float* staged, float* sums, Add add) {
    for (int first = 0; first < B; first += STAGE) {
        const int count = B - first < STAGE ? B - first : STAGE;
        BLOCK_FOR(b, 0, count) staged[b] = advantage[index[first + b]];
        BARRIER();
        BLOCK_FOR(lane, 0, LANES) {
            float sum = first ? sums[lane] : 0.0f;
            for (int b = lane; b < count; b += LANES) sum = add(sum, staged[b]);
            sums[lane] = sum;
        }
        BARRIER();
    }
}

KERNEL advantage_shift(const float* advantage,  // (M)
                       const int* indices,      // (K, B) rows of the rollout
                       float* shifts,           // (K, 2)
                       int B) {
    const int* index = indices + (long long)blockIdx.x * B;
    float* shift = shifts + 2 * blockIdx.x;
    SHARED(float, staged, STAGE);
    SHARED(float, sums, LANES);
    SHARED(float, mean, 1);
    chains(advantage, index, B, staged, sums, [](float sum, float a) { return sum + a; });
    BLOCK_FOR(only, 0, 1) {
        float sum = 0.0f;
        for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
        mean[0] = sum / (float)B;  // read behind the next barrier
    }
    chains(advantage, index, B, staged, sums, [&](float sum, float a) {
        const float d = a - mean[0];
        return fused_multiply_add(d, d, sum);
    });
    BLOCK_FOR(only, 0, 1) {
        float sum = 0.0f;
        for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
        shift[0] = B > 1 ? mean[0] : 0.0f;
        shift[1] = B > 1 ? 1.0f / (square_root(sum / (float)(B - 1)) + 1e-8f) : 1.0f;
    }
}
