// Draws an action for each row, with its log-probability and the distribution's entropy.
#include "distributions.cuh"

KERNEL sample(const float* parameters,  // (N, PARAMETER_WIDTH)
              const int* first,         // (1), a step that `step` counts from
              ActionElement* action,    // (N) or (N, A)
              float* log_prob,          // (N)
              float* entropy,           // (N)
              int N, unsigned step, unsigned long long run_seed) {
    const Range share = block_share(N);
    const unsigned draw = (unsigned)first[0] + step;
    BLOCK_FOR(n, share.begin, share.end) {
        const Distribution<float> distribution(parameters + n * PARAMETER_WIDTH);
        ActionElement* mine = action + n * ACTION_WIDTH;
        distribution.sample(mine, n, draw, run_seed);
        log_prob[n] = distribution.log_prob(mine);
        entropy[n] = distribution.entropy();
    }
}
