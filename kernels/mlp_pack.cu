// Copies the flat parameters to where the other kernels of the MLP read them: rows on cache lines, and transposes.
#include "mlp.cuh"

// Row by row, so that what lies in a row moves as one. A padded row ends in zeros.
template <int T, int L>
DEVICE_MEMBER void pack_layer(const float* parameters, float* packed) {
    constexpr int I = inputs(L), O = hidden(L), N = padded(O), M = padded(I);
    const float* from = parameters + flat_layer(T, L);
    float *to = packed + packed_layer(T, L), *transpose = packed + packed_transpose(T, L);
    const Range rows = block_share(I + 1), lines = block_share(L ? N / LINE : 0);
    for (int r = rows.begin; r < rows.end; r++)
        BLOCK_FOR(c, 0, N) to[r * N + c] = c < O ? from[r * O + c] : 0.0f;
    for (int line = lines.begin; line < lines.end; line++) {
        const int first = line * LINE;
        if constexpr (L && I % LINE == 0 && O % LINE == 0)
            tile_transpose<M, LINE>(from + first, O, transpose + first * M, M);
        else
            for (int o = first; o < O && o < first + LINE; o++)
                BLOCK_FOR(i, 0, M) transpose[o * M + i] = i < I ? from[i * O + o] : 0.0f;
    }
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
