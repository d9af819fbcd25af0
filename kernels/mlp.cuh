// The fused MLP actor-critic: its shapes, where its parameters lie, and what a block computes for a tile of samples.
//
// Activations are rows, a sample each; lanes run over a layer's outputs, in the head over samples. Constants:
//   LS_OBSERVATION D   LS_HIDDEN widths, input side first   LS_RELU 1: ReLU, 0: tanh
//   LS_SHARED 1: one trunk with both heads, 0: actor and critic apart
//   LS_OFFSETS where each piece begins in the flat buffer: the layers of the actor (or the trunk) and its head, then
//              the critic's layers and head, then log_std of a Gaussian
//   LS_LOG_STD its two bounds
// A layer lies there input-major, [(inputs + 1)][outputs] with the bias last.
#pragma once
#include "loss.cuh"
#include "tile.cuh"

constexpr int D = LS_OBSERVATION;
DEVICE constexpr int hidden(int layer) {
    const int widths[] = {LS_HIDDEN};
    return widths[layer];
}
DEVICE constexpr int depth() {
    const int widths[] = {LS_HIDDEN};
    return sizeof widths / sizeof *widths;
}
constexpr int DEPTH = depth();
constexpr int LAST = hidden(DEPTH - 1);  // the width that the heads read
DEVICE constexpr int inputs(int layer) { return layer ? hidden(layer - 1) : D; }
DEVICE constexpr int widest() {
    int most = 0;
    for (int layer = 0; layer < DEPTH; layer++) most = hidden(layer) > most ? hidden(layer) : most;
    return most;
}

// Tower 0 ends in the actor's outputs (logits or means); the value follows them in a shared trunk, else it is tower 1's.
constexpr int ACTOR = LS_DISCRETE ? PARAMETER_WIDTH : ACTION_WIDTH;
constexpr int TOWERS = LS_SHARED ? 1 : 2;
DEVICE constexpr int outputs(int tower) { return LS_SHARED ? ACTOR + 1 : tower ? 1 : ACTOR; }
DEVICE constexpr bool acts(int tower) { return tower == 0; }
DEVICE constexpr bool values(int tower) { return tower == TOWERS - 1; }
DEVICE constexpr int value_row(int tower) { return outputs(tower) - 1; }

DEVICE constexpr int flat_offset(int piece) {
    const int offsets[] = {LS_OFFSETS};
    return offsets[piece];
}
DEVICE constexpr int flat_layer(int tower, int layer) { return flat_offset(tower * (DEPTH + 1) + layer); }
DEVICE constexpr int flat_actor_head() { return flat_offset(DEPTH); }
DEVICE constexpr int flat_critic_head() { return flat_offset(LS_SHARED ? DEPTH + 1 : 2 * DEPTH + 1); }
DEVICE constexpr int flat_log_std() { return flat_offset(LS_SHARED ? DEPTH + 2 : 2 * DEPTH + 2); }

// The packed parameters, rows padded to cache lines: of each tower the layers in panels (tile.cuh), padded outputs wide,
// and their biases; in panels too the transposes of all but the first, padded inputs wide; the head
// [outputs][padded inputs] and its biases; last log_std within its bounds. What a partition's gradient holds lies alike,
// without the transposes, the head in panels too, and with the metrics' sums at the end.
DEVICE constexpr int layer_size(int layer) { return (inputs(layer) + 1) * padded(hidden(layer)); }
DEVICE constexpr int transpose_size(int layer) { return layer ? hidden(layer) * padded(inputs(layer)) : 0; }
DEVICE constexpr int head_size(int tower) { return outputs(tower) * padded(LAST); }
DEVICE constexpr int place(int tower, int layer, bool transposes) {
    int offset = 0;
    for (int t = 0; t <= tower; t++) {
        for (int l = 0; l < (t < tower ? DEPTH : layer); l++)
            offset += layer_size(l) + (transposes ? transpose_size(l) : 0);
        if (t < tower) offset += head_size(t) + padded(outputs(t));
    }
    return offset;
}
DEVICE constexpr int packed_layer(int tower, int layer) { return place(tower, layer, true); }
DEVICE constexpr int packed_transpose(int tower, int layer) { return place(tower, layer, true) + layer_size(layer); }
DEVICE constexpr int packed_head(int tower) { return place(tower, DEPTH, true); }
DEVICE constexpr int packed_bias(int tower) { return packed_head(tower) + head_size(tower); }
DEVICE constexpr int packed_log_std() { return place(TOWERS, 0, true); }
DEVICE constexpr int gradient_layer(int tower, int layer) { return place(tower, layer, false); }
DEVICE constexpr int gradient_head(int tower) { return place(tower, DEPTH, false); }
DEVICE constexpr int gradient_bias(int tower) { return gradient_head(tower) + head_size(tower); }
DEVICE constexpr int gradient_log_std() { return place(TOWERS, 0, false); }
constexpr int LOG_STD_SIZE = LS_DISCRETE ? 0 : padded(ACTION_WIDTH);
constexpr int PACKED_SIZE = packed_log_std() + LOG_STD_SIZE;
constexpr int GRADIENT_METRICS = gradient_log_std() + LOG_STD_SIZE;
constexpr int GRADIENT_SIZE = GRADIENT_METRICS + padded(METRICS);

// A block's tile, in shared memory: its samples, the layers' activations, the last ones of HEAD samples transposed, and
// rows over samples for the head: outputs (then their gradients), log_std's gradients, metrics, and the recorded numbers.
// On a host as many samples as stay in a core's first cache; where a layer's weights alone fill it, more work for each of
// them. On a GPU the launcher says how many (kernels/mlp.py).
#ifdef LS_SAMPLES
constexpr int SAMPLES = LS_SAMPLES;
#else
constexpr int SAMPLES = widest() <= 64 ? 32 : 128;
#endif
constexpr int HEAD = 32;  // samples that the head takes at a time
constexpr int DEVICE_SKEW = 4;
constexpr int SKEW = ON_DEVICE ? DEVICE_SKEW : LINE;  // rows begin in different banks of shared memory, sets of a cache
DEVICE constexpr int stride(int layer) { return padded(hidden(layer)) + SKEW; }
DEVICE constexpr int tile_layer(int layer) {
    int offset = padded(SAMPLES * D);
    for (int l = 0; l < layer; l++) offset += SAMPLES * stride(l);
    return offset;
}
constexpr int TILE_LAST = tile_layer(DEPTH);
constexpr int TILE_OUTPUT = TILE_LAST + padded(LAST) * HEAD;
constexpr int OUTPUT_ROWS = ACTOR + 1 + (LS_DISCRETE ? 0 : ACTION_WIDTH);
constexpr int TILE_METRIC = TILE_OUTPUT + OUTPUT_ROWS * SAMPLES;
constexpr int TILE_RECORD = TILE_METRIC + METRICS * SAMPLES;
constexpr int RECORD_ROWS = ACTION_WIDTH + 3;  // action, old log-probability, advantage, return
constexpr int TILE_SIZE = TILE_RECORD + RECORD_ROWS * SAMPLES;
// The same for any number of samples, a multiple of HEAD: what a GPU's tile takes is counted on a host.
DEVICE constexpr int tile_size(int samples, int skew) {
    int size = padded(LAST) * HEAD + (D + OUTPUT_ROWS + METRICS + RECORD_ROWS) * samples;
    for (int layer = 0; layer < DEPTH; layer++) size += samples * (padded(hidden(layer)) + skew);
    return size;
}
static_assert(TILE_SIZE == tile_size(SAMPLES, SKEW) && SAMPLES % HEAD == 0, "one count of a tile");

#if LS_RELU
DEVICE vec activation(vec x) { return select(x > 0.0f, x, 0.0f); }
DEVICE vec slope(vec y) { return select(y > 0.0f, splat(1.0f), 0.0f); }
#else
DEVICE vec activation(vec x) { return tanh_(x); }
DEVICE vec slope(vec y) { return fused_multiply_add(-y, y, 1.0f); }  // of tanh, from its result
#endif

// Layer by layer the activations of `rows` samples, then the tower's outputs, [output][sample]. The samples lie in the
// tile; a barrier comes before and after.
template <int T, int L>
DEVICE_MEMBER void forward_layer(const float* packed, int rows, float* tile) {
    constexpr int N = padded(hidden(L)), K = inputs(L);
    const float* weight = packed + packed_layer(T, L);
    float* y = tile + tile_layer(L);
    const Rows x{L ? tile + tile_layer(L - 1) : tile, L ? stride(L - 1) : D};
    tile_product_even<N>(
        rows, K, x, Panels<K>{weight}, [&](int, int n) { return load(weight + K * N + n); },
        [&](int m, int n, vec sum) { store(y + m * stride(L) + n, activation(sum)); });
    BARRIER();
}
template <int T, int L = 0>
DEVICE_MEMBER void forward(const float* packed, int rows, float* tile) {
    if constexpr (L < DEPTH) {
        forward_layer<T, L>(packed, rows, tile);
        forward<T, L + 1>(packed, rows, tile);
    } else {
        const float* bias = packed + packed_bias(T);
        for (int s = 0; s < rows; s += HEAD) {
            constexpr int X = stride(DEPTH - 1);
            tile_transpose<HEAD, padded(LAST)>(tile + tile_layer(DEPTH - 1) + s * X, X, tile + TILE_LAST, HEAD);
            BARRIER();
            float* output = tile + TILE_OUTPUT + s;
            tile_product<HEAD>(
                outputs(T), LAST, Rows{packed + packed_head(T), padded(LAST)}, Matrix{tile + TILE_LAST, HEAD},
                [&](int m, int) { return splat(bias[m]); },
                [&](int m, int n, vec sum) { store(output + m * SAMPLES + n, sum); });
            BARRIER();
        }
    }
}

// Rows [begin, begin + rows) of the observations into the tile.
DEVICE void load_observations(const float* observation, int begin, int rows, float* tile) {
    BLOCK_FOR(i, 0, rows * D) tile[i] = observation[begin * D + i];
    BARRIER();
}

// The action distribution's parameters of sample s, from the outputs.
DEVICE void parameters_of(const float* packed, const float* output, int s, float* parameters) {
    for (int a = 0; a < ACTOR; a++) parameters[a] = output[a * SAMPLES + s];
#if !LS_DISCRETE
    for (int d = 0; d < ACTION_WIDTH; d++) parameters[ACTOR + d] = packed[packed_log_std() + d];
#endif
}
