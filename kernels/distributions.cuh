// Action distributions, told apart at compile time (actions.cuh). F is float, one sample, or vec, a sample a lane.
// Their parameters are one row a sample:
//   categorical: the logits of each choice, one after the other    action: an int a choice
//   Gaussian:    A means, then A log std                           action: A floats, raw (not clipped to bounds)
#pragma once
#include "actions.cuh"

constexpr float LOG_SQRT_2PI = 0.918938533204672742f;

#if !LS_DISCRETE

constexpr int A = LS_ACTIONS, PARAMETER_WIDTH = 2 * A;

template <class F>
struct Distribution {
    typedef F Action;
    const F *mean, *log_std;
    DEVICE_MEMBER explicit Distribution(const F* row) : mean(row), log_std(row + A) {}

    // Draws (index, step) is this sample's counter; four dimensions share a Philox block.
    DEVICE_MEMBER void sample(float* action, unsigned index, unsigned step, unsigned long long key) const {
        constexpr int BLOCKS = (A + 3) / 4;
        for (int block = 0; block < BLOCKS; block++) {
            const Normals z = normals(philox(index * BLOCKS + block, step, PURPOSE_ACTION, 0, key));
            for (int d = block * 4; d < A && d < block * 4 + 4; d++)
                action[d] = mean[d] + exp_(log_std[d]) * z.value[d % 4];
        }
    }

    DEVICE_MEMBER F log_prob(const F* action) const {
        F sum = all<F>(0.0f);
        for (int d = 0; d < A; d++) {
            const F z = (action[d] - mean[d]) * exp_(-log_std[d]);
            sum = sum + (-0.5f * z * z - log_std[d] - LOG_SQRT_2PI);
        }
        return sum;
    }

    DEVICE_MEMBER F entropy() const {
        F sum = all<F>(0.0f);
        for (int d = 0; d < A; d++) sum = sum + (0.5f + LOG_SQRT_2PI + log_std[d]);
        return sum;
    }

    // gradient = by_log_prob * d log_prob(action) + by_entropy * d entropy, both with respect to the parameters
    DEVICE_MEMBER void gradient(const F* action, F by_log_prob, float by_entropy, F* out) const {
        for (int d = 0; d < A; d++) {
            const F inverse_std = exp_(-log_std[d]), z = (action[d] - mean[d]) * inverse_std;
            out[d] = by_log_prob * z * inverse_std;
            out[A + d] = by_log_prob * (z * z - 1.0f) + by_entropy;
        }
    }
};

#else

constexpr int PARAMETER_WIDTH = sum_of_choices();

// For each choice: FIRST its first logit, SIZE how many there are.
#define EACH_CHOICE(choice, FIRST, SIZE)                                                                      \
    for (int choice = 0, FIRST = 0, SIZE = choice_size(0); choice < ACTION_WIDTH;                             \
         FIRST += SIZE, choice++, SIZE = choice < ACTION_WIDTH ? choice_size(choice) : 0)

template <class F>
struct Distribution {
    typedef Integer<F> Action;
    F log_probs[PARAMETER_WIDTH];

    DEVICE_MEMBER explicit Distribution(const F* logits) {
        EACH_CHOICE(choice, first, size) {
            F largest = logits[first], sum = all<F>(0.0f);
            for (int a = first + 1; a < first + size; a++) largest = select(logits[a] > largest, logits[a], largest);
            for (int a = first; a < first + size; a++) sum = sum + exp_(logits[a] - largest);
            const F log_sum = log_(sum) + largest;
            for (int a = first; a < first + size; a++) log_probs[a] = logits[a] - log_sum;
        }
    }

    // Of each choice the first action whose cumulative probability exceeds the uniform draw; rounding leaves the rest
    // to the last one. Draws (index, step) is this sample's counter; four choices share a Philox block.
    DEVICE_MEMBER void sample(int* action, unsigned index, unsigned step, unsigned long long key) const {
        constexpr int BLOCKS = (ACTION_WIDTH + 3) / 4;
        Philox words{};
        EACH_CHOICE(choice, first, size) {
            if (choice % 4 == 0) words = philox(index * BLOCKS + choice / 4, step, PURPOSE_ACTION, 0, key);
            const float u = uniform(words.word[choice % 4]);
            float cumulative = 0.0f;
            int chosen = 0;
            for (int a = first; a < first + size - 1; a++) {
                cumulative += exp_(log_probs[a]);
                chosen += u >= cumulative;
            }
            action[choice] = chosen;
        }
    }

    DEVICE_MEMBER F log_prob(const Action* action) const {
        F sum = all<F>(0.0f);
        EACH_CHOICE(choice, first, size) {
            F value = all<F>(0.0f);
            for (int a = 0; a < size; a++) value = select(action[choice] == a, log_probs[first + a], value);
            sum = sum + value;
        }
        return sum;
    }

    DEVICE_MEMBER F entropy() const {
        F sum = all<F>(0.0f);
        for (int a = 0; a < PARAMETER_WIDTH; a++) sum = sum - exp_(log_probs[a]) * log_probs[a];
        return sum;
    }

    // gradient = by_log_prob * d log_prob(action) + by_entropy * d entropy, both with respect to the logits
    DEVICE_MEMBER void gradient(const Action* action, F by_log_prob, float by_entropy, F* out) const {
        EACH_CHOICE(choice, first, size) {
            F h = all<F>(0.0f);
            for (int a = first; a < first + size; a++) h = h - exp_(log_probs[a]) * log_probs[a];
            for (int a = 0; a < size; a++) {
                const F p = exp_(log_probs[first + a]);
                const F one_hot = select(action[choice] == a, all<F>(1.0f), all<F>(0.0f));
                out[first + a] = by_log_prob * (one_hot - p) - by_entropy * p * (log_probs[first + a] + h);
            }
        }
    }
};

#endif
