// Copies the flat parameters to where the other kernels of the MLP read them: rows on cache lines, and transposes.
#include "mlp.cuh"

// Panel by panel. What lies beside a matrix is zero.
template <int T, int L>
DEVICE_MEMBER void pack_layer(const float* parameters, float* packed) {
    constexpr int I = inputs(L), O = hidden(L);
    const float *from = parameters + flat_layer(T, L), *bias = from + I * O;
    float *to = packed + packed_layer(T, L), *transpose = packed + packed_transpose(T, L);
    const Range lines = block_share(padded(O) / LINE), lines_back = block_share(L ? padded(I) / LINE : 0);
    for (int line = lines.begin; line < lines.end; line++) {
        const int first = line * LINE;
        float* panel = to + first * I;
        BLOCK_FOR(i, 0, I)
            for (int c = 0; c < LINE; c++) panel[i * LINE + c] = first + c < O ? from[i * O + first + c] : 0.0f;
        BLOCK_FOR(c, 0, LINE) to[I * padded(O) + first + c] = first + c < O ? bias[first + c] : 0.0f;
    }
    for (int line = lines_back.begin; line < lines_back.end; line++) {
        const int first = line * LINE;
        float* panel = transpose + first * O;
        if constexpr (L && I % LINE == 0 && O % LINE == 0)
            tile_transpose<LINE, O>(from + first * O, O, panel, LINE);
        else
            BLOCK_FOR(o, 0, O)
                for (int c = 0; c < LINE; c++) panel[o * LINE + c] = first + c < I ? from[(first + c) * O + o] : 0.0f;
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
