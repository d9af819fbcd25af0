// Generalized advantage estimation (Schulman et al., arXiv:1506.02438, eq. 16) with the two ends of an episode apart.
//
//   bootstrap_t = 0 if terminated, V(final observation) if truncated only, V(s_{t+1}) otherwise
//   delta_t     = r_t + gamma * bootstrap_t - V(s_t)
//   A_t         = delta_t + gamma * lambda * A_{t+1}, the recursion cut where an episode ended
//   return_t    = A_t + V(s_t)
#include "device.cuh"

KERNEL gae(const float* rewards,             // (T, N)
           const float* values,              // (T + 1, N)
           const float* final_values,        // (T, N), read only where truncated and not terminated
           const unsigned char* terminated,  // (T, N)
           const unsigned char* truncated,   // (T, N)
           float* advantages,                // (T, N)
           float* returns,                   // (T, N)
           int T, int N, float gamma, float gae_lambda) {
    const Range share = block_share(N);
    BLOCK_FOR(n, share.begin, share.end) {
        float advantage = 0.0f;
        for (int t = T - 1; t >= 0; t--) {
            const int i = t * N + n;
            const bool ended = terminated[i] || truncated[i];
            const float bootstrap = terminated[i] ? 0.0f : truncated[i] ? final_values[i] : values[i + N];
            const float delta = rewards[i] + gamma * bootstrap - values[i];
            advantage = delta + (ended ? 0.0f : gamma * gae_lambda * advantage);
            advantages[i] = advantage;
            returns[i] = advantage + values[i];
        }
    }
}
