// An iteration in numbers, in float64: of its rollout and of its minibatches. Two kernels: each block's sums over its
// share of the rollout, then all of them.
#include "device.cuh"

enum Sum { EPISODES, RETURN, LENGTH, TARGET, TARGET_SQUARED, ERROR, ERROR_SQUARED, NOT_FINITE, SAMPLES, SUMS };

// 1 for NaN and infinity.
DEVICE double not_finite(float x) { return x - x == 0.0f ? 0.0 : 1.0; }

KERNEL rollout_sums(const float* observation,         // (X), all of them
                    const float* reward,              // (M)
                    const float* log_prob,            // (M)
                    const float* value,               // (V), of which the first M are summed
                    const float* advantage,           // (M)
                    const float* target,              // (M), the returns that the critic learns
                    const unsigned char* terminated,  // (M)
                    const unsigned char* truncated,   // (M)
                    const float* episode_return,      // (M)
                    const int* episode_length,        // (M); 0 where the row is a filler: only its finiteness counts
                    double* partials,                 // (P, SUMS)
                    int X, int M, int V) {
    SHARED(double, sums, LANES * SUMS);
    const Range share = block_share(M), seen = block_share(X), valued = block_share(V);
    BLOCK_FOR(lane, 0, LANES) {
        double sum[SUMS] = {};
        for (int i = seen.begin + lane; i < seen.end; i += LANES) sum[NOT_FINITE] += not_finite(observation[i]);
        for (int i = valued.begin + lane; i < valued.end; i += LANES) sum[NOT_FINITE] += not_finite(value[i]);
        for (int i = share.begin + lane; i < share.end; i += LANES) {
            sum[NOT_FINITE] += not_finite(reward[i]) + not_finite(log_prob[i]) + not_finite(advantage[i]);
            if (episode_length[i] == 0) continue;
            sum[SAMPLES] += 1.0;
            const bool ended = terminated[i] || truncated[i];
            // Less the first one, so that what never changes has a variance of exactly 0.
            const double t = (double)target[i] - (double)target[0];
            const double e = ((double)target[i] - (double)value[i]) - ((double)target[0] - (double)value[0]);
            sum[EPISODES] += ended ? 1.0 : 0.0;
            sum[RETURN] += ended ? (double)episode_return[i] : 0.0;
            sum[LENGTH] += ended ? (double)episode_length[i] : 0.0;
            sum[TARGET] += t;
            sum[TARGET_SQUARED] += t * t;
            sum[ERROR] += e;
            sum[ERROR_SQUARED] += e * e;
        }
        for (int k = 0; k < SUMS; k++) sums[lane * SUMS + k] = sum[k];
    }
    BARRIER();
    BLOCK_FOR(k, 0, SUMS) {
        double sum = 0.0;
        for (int lane = 0; lane < LANES; lane++) sum += sums[lane * SUMS + k];
        partials[(int)blockIdx.x * SUMS + k] = sum;
    }
}

KERNEL summary(const double* partials,  // (P, SUMS)
               const float* metrics,    // (K, W) of the minibatches
               const float* norms,      // (K)
               double* numbers,         // (W + 6): episodes, their mean return and length, explained variance, how many
                                        // values are not finite, the gradient norm's mean, the metrics' means
               int P, int K, int W) {
    SHARED(double, sum, SUMS);
    BLOCK_FOR(k, 0, SUMS) {
        sum[k] = 0.0;
        for (int p = 0; p < P; p++) sum[k] += partials[p * SUMS + k];
    }
    BARRIER();
    BLOCK_FOR(only, 0, 1) {
        const double m = sum[SAMPLES];
        const double target = sum[TARGET_SQUARED] / m - sum[TARGET] / m * (sum[TARGET] / m);
        const double error = sum[ERROR_SQUARED] / m - sum[ERROR] / m * (sum[ERROR] / m);
        numbers[0] = sum[EPISODES];
        numbers[1] = sum[RETURN] / sum[EPISODES];
        numbers[2] = sum[LENGTH] / sum[EPISODES];
        numbers[3] = target > 0.0 ? 1.0 - error / target : (double)as_float(0x7fc00000u);
        numbers[4] = sum[NOT_FINITE];
        double norm = 0.0;
        for (int k = 0; k < K; k++) norm += (double)norms[k];
        numbers[5] = norm / (double)K;
    }
    BLOCK_FOR(w, 0, W) {
        double total = 0.0;
        for (int k = 0; k < K; k++) total += (double)metrics[k * W + w];
        numbers[6 + w] = total / (double)K;
    }
}
