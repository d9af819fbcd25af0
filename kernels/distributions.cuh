// Action distributions, told apart at compile time. Their parameters are one row a sample:
//   categorical: A logits                       action: int32
//   Gaussian:    A means, then A log std        action: A floats, raw (not clipped to the environment's bounds)
// LS_GAUSSIAN is 0 or 1, LS_A the number of actions (categorical) or of action dimensions (Gaussian).
#pragma once
#include "seeds.cuh"

constexpr int A = LS_A;
constexpr float LOG_SQRT_2PI = 0.918938533204672742f;

#if LS_GAUSSIAN

constexpr int ACTION_WIDTH = A, PARAMETER_WIDTH = 2 * A;
typedef float ActionElement;

struct Distribution {
    const float *mean, *log_std;
    DEVICE_MEMBER explicit Distribution(const float* row) : mean(row), log_std(row + A) {}

    // Draws (index, step) is this sample's counter; four dimensions share a Philox block.
    DEVICE_MEMBER void sample(float* action, unsigned index, unsigned step, unsigned long long key) const {
        constexpr int BLOCKS = (A + 3) / 4;
        for (int block = 0; block < BLOCKS; block++) {
            const Normals z = normals(philox(index * BLOCKS + block, step, PURPOSE_ACTION, 0, key));
            for (int d = block * 4; d < A && d < block * 4 + 4; d++)
                action[d] = mean[d] + exp_(log_std[d]) * z.value[d % 4];
        }
    }

    DEVICE_MEMBER float log_prob(const float* action) const {
        float sum = 0.0f;
        for (int d = 0; d < A; d++) {
            const float z = (action[d] - mean[d]) * exp_(-log_std[d]);
            sum += -0.5f * z * z - log_std[d] - LOG_SQRT_2PI;
        }
        return sum;
    }

    DEVICE_MEMBER float entropy() const {
        float sum = 0.0f;
        for (int d = 0; d < A; d++) sum += 0.5f + LOG_SQRT_2PI + log_std[d];
        return sum;
    }

    // gradient = by_log_prob * d log_prob(action) + by_entropy * d entropy, both with respect to the parameters
    DEVICE_MEMBER void gradient(const float* action, float by_log_prob, float by_entropy, float* out) const {
        for (int d = 0; d < A; d++) {
            const float inverse_std = exp_(-log_std[d]), z = (action[d] - mean[d]) * inverse_std;
            out[d] = by_log_prob * z * inverse_std;
            out[A + d] = by_log_prob * (z * z - 1.0f) + by_entropy;
        }
    }
};

#else

constexpr int ACTION_WIDTH = 1, PARAMETER_WIDTH = A;
typedef int ActionElement;

struct Distribution {
    float log_probs[A];
    DEVICE_MEMBER explicit Distribution(const float* logits) {
        float largest = logits[0], sum = 0.0f;
        for (int a = 1; a < A; a++) largest = logits[a] > largest ? logits[a] : largest;
        for (int a = 0; a < A; a++) sum += exp_(logits[a] - largest);
        const float log_sum = log_(sum) + largest;
        for (int a = 0; a < A; a++) log_probs[a] = logits[a] - log_sum;
    }

    // The first action whose cumulative probability exceeds the uniform draw; rounding leaves the rest to the last one.
    DEVICE_MEMBER void sample(int* action, unsigned index, unsigned step, unsigned long long key) const {
        const float u = uniform(philox(index, step, PURPOSE_ACTION, 0, key).word[0]);
        float cumulative = 0.0f;
        int chosen = 0;
        for (int a = 0; a < A - 1; a++) {
            cumulative += exp_(log_probs[a]);
            chosen += u >= cumulative;
        }
        *action = chosen;
    }

    DEVICE_MEMBER float log_prob(const int* action) const {
        float value = 0.0f;
        for (int a = 0; a < A; a++) value = a == *action ? log_probs[a] : value;
        return value;
    }

    DEVICE_MEMBER float entropy() const {
        float sum = 0.0f;
        for (int a = 0; a < A; a++) sum -= exp_(log_probs[a]) * log_probs[a];
        return sum;
    }

    // gradient = by_log_prob * d log_prob(action) + by_entropy * d entropy, both with respect to the logits
    DEVICE_MEMBER void gradient(const int* action, float by_log_prob, float by_entropy, float* out) const {
        const float h = entropy();
        for (int a = 0; a < A; a++) {
            const float p = exp_(log_probs[a]);
            out[a] = by_log_prob * ((a == *action ? 1.0f : 0.0f) - p) - by_entropy * p * (log_probs[a] + h);
        }
    }
};

#endif
