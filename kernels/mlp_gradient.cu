// The gradient of the PPO loss of a minibatch, in one pass over its samples: gather, forward, loss, backward.
//
// A block owns a partition of the minibatch and a tower, and sums over the partition's samples in their order, one chain
// an element; mlp_reduce adds the partitions in theirs. How many samples a tile holds enters no result.
#include "mlp.cuh"

struct Minibatch {
    const float* observation;     // (M, D)
    const int* index;             // (B) rows of the rollout
    const ActionElement* action;  // (M) or (M, ACTION_WIDTH)
    const float *old_log_prob, *advantage, *returns;  // (M)
    const float* shift;           // (2): each advantage enters as (advantage - shift[0]) * shift[1]
    float scale, clip_coef, ent_coef, vf_coef;
};

// What the tower needs of samples [begin, begin + rows) into the tile, [number][sample]; lanes beyond repeat the first.
template <int T>
DEVICE_MEMBER void gather(const Minibatch& batch, int begin, int rows, float* tile) {
    BLOCK_FOR(i, 0, rows * D) tile[i] = batch.observation[batch.index[begin + i / D] * D + i % D];
    float* record = tile + TILE_RECORD;
    BLOCK_FOR(s, 0, padded(rows)) {
        const int i = batch.index[begin + (s < rows ? s : 0)];
        if constexpr (acts(T)) {
            for (int k = 0; k < ACTION_WIDTH; k++)
                ((ActionElement*)record)[k * SAMPLES + s] = batch.action[i * ACTION_WIDTH + k];
            record[ACTION_WIDTH * SAMPLES + s] = batch.old_log_prob[i];
            record[(ACTION_WIDTH + 1) * SAMPLES + s] = (batch.advantage[i] - batch.shift[0]) * batch.shift[1];
        }
        if constexpr (values(T)) record[(ACTION_WIDTH + 2) * SAMPLES + s] = batch.returns[i];
    }
    BARRIER();
}

// The loss of each sample: metrics' terms, and gradients in the place of the outputs.
template <int T>
DEVICE_MEMBER void loss(const Minibatch& batch, const float* packed, int rows, float* tile) {
    float *output = tile + TILE_OUTPUT, *metric = tile + TILE_METRIC;
    const float* record = tile + TILE_RECORD;
    BLOCK_FOR(v, 0, padded(rows) / VECTOR) {
        const int s = v * VECTOR;
        vec terms[METRICS];
        if constexpr (acts(T)) {
            vec parameters[PARAMETER_WIDTH], gradient[PARAMETER_WIDTH];
            typename Distribution<vec>::Action taken[ACTION_WIDTH];
            for (int a = 0; a < ACTOR; a++) parameters[a] = load(output + a * SAMPLES + s);
            for (int a = ACTOR; a < PARAMETER_WIDTH; a++) parameters[a] = splat(packed[packed_log_std() + a - ACTOR]);
            for (int k = 0; k < ACTION_WIDTH; k++) taken[k] = load((const ActionElement*)record + k * SAMPLES + s);
            policy_loss(Distribution<vec>(parameters), taken, load(record + ACTION_WIDTH * SAMPLES + s),
                        load(record + (ACTION_WIDTH + 1) * SAMPLES + s), batch.clip_coef, batch.ent_coef, batch.scale,
                        gradient, terms);
            for (int a = 0; a < ACTOR; a++) store(output + a * SAMPLES + s, gradient[a]);
            for (int a = ACTOR; a < PARAMETER_WIDTH; a++) store(output + (a + 1) * SAMPLES + s, gradient[a]);
            for (int k = 0; k < METRICS; k++)
                if (k != VALUE_LOSS) store(metric + k * SAMPLES + s, terms[k]);
        }
        if constexpr (values(T)) {
            float* row = output + value_row(T) * SAMPLES + s;
            store(row, value_loss(load(row), load(record + (ACTION_WIDTH + 2) * SAMPLES + s), batch.vf_coef,
                                  batch.scale, terms));
            store(metric + VALUE_LOSS * SAMPLES + s, terms[VALUE_LOSS]);
        }
    }
    BARRIER();
}

// sum += the first `rows` numbers of row `k`, in order.
DEVICE void add_row(const float* row, int rows, bool first, float* sum) {
    float total = first ? 0.0f : *sum;
    for (int s = 0; s < rows; s++) total += row[s];
    *sum = total;
}

// This tile's share of a matrix of the gradient, in panels: sum over samples of left(m, s) * delta[s][n].
template <int M, int N, class Left>
DEVICE_MEMBER void add_products(int rows, Left left, const float* delta, int stride, bool first, float* gradient) {
    const auto place = [&](int m, int n) { return gradient + n / LINE * (M * LINE) + m * LINE + n % LINE; };
    const auto before = [&](int m, int n) { return first ? splat(0.0f) : load(place(m, n)); };
    const auto after = [&](int m, int n, vec sum) { store(place(m, n), sum); };
    tile_product<N>(M, rows, left, Matrix{delta, stride}, before, after);
}

// From the gradients by the outputs to those of all parameters of the tower. Activations become gradients in place.
template <int T, int L>
DEVICE_MEMBER void backward_layer(const float* packed, int rows, bool first, float* tile, float* gradient) {
    constexpr int N = padded(hidden(L)), I = inputs(L);
    float *delta = tile + tile_layer(L), *x = L ? tile + tile_layer(L ? L - 1 : 0) : tile;
    constexpr int X = L ? stride(L ? L - 1 : 0) : D;
    float* own = gradient + gradient_layer(T, L);
    add_products<I, N>(rows, Columns{x, X}, delta, stride(L), first, own);
    float* bias = own + I * N;
    tile_sum<N>(
        rows, delta, stride(L), [&](int n) { return first ? splat(0.0f) : load(bias + n); },
        [&](int n, vec sum) { store(bias + n, sum); });
    if constexpr (L > 0) {
        BARRIER();
        constexpr int M = padded(I);
        tile_product_even<M>(
            rows, hidden(L), Rows{delta, stride(L)}, Panels<hidden(L)>{packed + packed_transpose(T, L)},
            [](int, int) { return splat(0.0f); },
            [&](int m, int n, vec sum) { store(x + m * X + n, sum * slope(load(x + m * X + n))); });
        BARRIER();
        backward_layer<T, L - 1>(packed, rows, first, tile, gradient);
    }
}
template <int T>
DEVICE_MEMBER void backward(const float* packed, int rows, bool first, float* tile, float* gradient) {
    constexpr int N = padded(LAST), X = stride(DEPTH - 1), O = outputs(T);
    float *h = tile + tile_layer(DEPTH - 1), *delta = tile + TILE_OUTPUT;
    add_products<O, N>(rows, Rows{delta, SAMPLES}, h, X, first, gradient + gradient_head(T));
    BLOCK_FOR(o, 0, O) add_row(delta + o * SAMPLES, rows, first, gradient + gradient_bias(T) + o);
    BLOCK_FOR(metric, 0, METRICS)
        if (metric == VALUE_LOSS ? values(T) : acts(T))
            add_row(tile + TILE_METRIC + metric * SAMPLES, rows, first, gradient + GRADIENT_METRICS + metric);
#if !LS_DISCRETE
    if constexpr (acts(T))
        BLOCK_FOR(d, 0, ACTION_WIDTH)
            add_row(delta + (ACTOR + 1 + d) * SAMPLES, rows, first, gradient + gradient_log_std() + d);
#endif
    BARRIER();
    tile_product_even<N>(
        rows, O, Columns{delta, SAMPLES}, Matrix{packed + packed_head(T), N}, [](int, int) { return splat(0.0f); },
        [&](int m, int n, vec sum) { store(h + m * X + n, sum * slope(load(h + m * X + n))); });
    BARRIER();
    backward_layer<T, DEPTH - 1>(packed, rows, first, tile, gradient);
    BARRIER();
}

template <int T>
DEVICE_MEMBER void partition_gradient(const Minibatch& batch, const float* packed, Range share, float* tile,
                                      float* gradient) {
    for (int begin = share.begin; begin < share.end; begin += SAMPLES) {
        const int rows = share.end - begin < SAMPLES ? share.end - begin : SAMPLES;
        gather<T>(batch, begin, rows, tile);
        forward<T>(packed, rows, tile);
        loss<T>(batch, packed, rows, tile);
        backward<T>(packed, rows, begin == share.begin, tile, gradient);
    }
}

KERNEL mlp_gradient(const float* packed,          // (K)
                    const float* observation,     // (M, D)
                    const int* index,             // (B) rows of the rollout
                    const ActionElement* action,  // (M) or (M, ACTION_WIDTH)
                    const float* old_log_prob,    // (M)
                    const float* advantage,       // (M)
                    const float* returns,         // (M)
                    const float* shift,           // (2): each advantage enters as (advantage - shift[0]) * shift[1]
                    float* partials,              // (P, GRADIENT_SIZE)
                    int B, int P, int Q, float clip_coef, float ent_coef, float vf_coef) {
    SHARED_TILE(tile, TILE_SIZE);
    const float scale = 1.0f / (float)B;
    const Minibatch batch{observation, index, action, old_log_prob, advantage, returns, shift,
                          scale, clip_coef, ent_coef, vf_coef};
    const int partition = (int)blockIdx.x % P;
    const Range share = share_of(partition, P, B);
    float* gradient = partials + (long long)partition * Q;
    if (TOWERS == 1 || (int)blockIdx.x < P)
        partition_gradient<0>(batch, packed, share, tile, gradient);
    else
        partition_gradient<TOWERS - 1>(batch, packed, share, tile, gradient);
}

// The policy's terms of the metrics alone, without a gradient.
KERNEL mlp_policy_metrics(const float* packed,          // (K)
                          const float* observation,     // (M, D)
                          const int* index,             // (B) rows of the rollout
                          const ActionElement* action,  // (M) or (M, ACTION_WIDTH)
                          const float* old_log_prob,    // (M)
                          const float* advantage,       // (M)
                          const float* returns,         // (M)
                          const float* shift,           // (2)
                          float* partials,              // (P, METRICS), of the value loss 0
                          int B, int P, float clip_coef, float ent_coef) {
    SHARED_TILE(tile, TILE_SIZE);
    const Minibatch batch{observation, index, action, old_log_prob, advantage, returns, shift,
                          0.0f, clip_coef, ent_coef, 0.0f};
    const Range share = block_share(B);
    for (int begin = share.begin; begin < share.end; begin += SAMPLES) {
        const int rows = share.end - begin < SAMPLES ? share.end - begin : SAMPLES;
        gather<0>(batch, begin, rows, tile);
        forward<0>(packed, rows, tile);
        loss<0>(batch, packed, rows, tile);
        BLOCK_FOR(metric, 0, METRICS) {
            float* sum = partials + (int)blockIdx.x * METRICS + metric;
            if (metric == VALUE_LOSS) *sum = 0.0f;
            else add_row(tile + TILE_METRIC + metric * SAMPLES, rows, begin == share.begin, sum);
        }
    }
}
