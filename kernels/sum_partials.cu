// Adds the partitions' sums in their order and divides by the number of samples.
#include "device.cuh"

KERNEL sum_partials(const float* partials,  // (P, K)
                    float* mean,            // (K)
                    int P, int K, int count) {
    BLOCK_FOR(k, 0, K) {
        float sum = 0.0f;
        for (int p = 0; p < P; p++) sum += partials[p * K + k];
        mean[k] = sum / (float)count;
    }
}
