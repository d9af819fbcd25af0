// Copies the flat parameters to where the other kernels of the MLP read them: rows on cache lines, and transposes.
#include "mlp.cuh"

template <int T, int L>
DEVICE_MEMBER void pack_layer(const float* parameters, float* packed) {
    constexpr int I = inputs(L), O = hidden(L), N = padded(O), M = padded(I);
    const float* from = parameters + flat_layer(T, L);
    float *to = packed + packed_layer(T, L), *transpose = packed + packed_transpose(T, L);
    const Range rows = block_share(I + 1), columns = block_share(L ? O : 0);
    BLOCK_FOR(i, rows.begin * N, rows.end * N) to[i] = i % N < O ? from[i / N * O + i % N] : 0.0f;
    BLOCK_FOR(i, columns.begin * M, columns.end * M) transpose[i] = i % M < I ? from[i % M * O + i / M] : 0.0f;
}

template <int T, int L = 0>
DEVICE_MEMBER void pack_tower(const float* parameters, float* packed) {
    if constexpr (L < DEPTH) {
        pack_layer<T, L>(parameters, packed);
        pack_tower<T, L + 1>(parameters, packed);
    } else {
        const Range share = block_share(outputs(T));
        constexpr int M = padded(LAST);
        BLOCK_FOR(i, share.begin * (M + 1), share.end * (M + 1)) {
            const int output = i / (M + 1), k = i % (M + 1);
            const bool value = values(T) && output == value_row(T);
            const int width = value ? 1 : ACTOR;
            const float* from = parameters + (value ? flat_critic_head() : flat_actor_head()) + (value ? 0 : output);
            if (k < M)
                packed[packed_head(T) + output * M + k] = k < LAST ? from[k * width] : 0.0f;
            else
                packed[packed_bias(T) + output] = from[LAST * width];
        }
    }
}

KERNEL mlp_pack(const float* parameters,  // (n)
                float* packed,            // (K)
                int n, int K) {
    pack_tower<0>(parameters, packed);
    if constexpr (TOWERS == 2) pack_tower<1>(parameters, packed);
#if !LS_DISCRETE
    const float bounds[] = {LS_LOG_STD};
    const Range share = block_share(ACTION_WIDTH);
    BLOCK_FOR(d, share.begin, share.end)
        packed[packed_log_std() + d] = clamp(parameters[flat_log_std() + d], bounds[0], bounds[1]);
#endif
}
