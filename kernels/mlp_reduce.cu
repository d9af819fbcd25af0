// Adds the partitions' gradients in their order and puts the sum where the parameters lie. For clipping each block leaves
// the sum of squares of its lines, in LINE chains, one a column.
#include "mlp.cuh"

struct Reduction {
    const float* partials;  // (P, Q)
    int P, Q;
    Range share;  // this block's lines
    float* sums;  // (Q): the partitions' sum, laid out as they are, zero beside the matrices

    // Adds up this block's lines. A GPU's neighbouring threads read neighbouring vectors, a host's core whole lines.
    DEVICE_MEMBER void add() const {
        constexpr int V = ON_DEVICE ? 1 : LINE / VECTOR, PARTS = LINE / VECTOR / V;
        BLOCK_FOR(i, share.begin * PARTS, share.end * PARTS) {
            const float* partial = partials + i * V * VECTOR;
            vec total[V];
            UNROLL for (int v = 0; v < V; v++) total[v] = load(partial + v * VECTOR);
            for (int p = 1; p < P; p++) {
                partial += Q;
                UNROLL for (int v = 0; v < V; v++) total[v] = total[v] + load(partial + v * VECTOR);
            }
            UNROLL for (int v = 0; v < V; v++) store(sums + (i * V + v) * VECTOR, total[v]);
        }
        BARRIER();
    }

    // Hands each of the lines of `floats` floats from `begin` that are this block's to place(number, line).
    template <class Place>
    DEVICE_MEMBER void lines(int begin, int floats, Place place) const {
        const int from = begin / LINE, to = from + floats / LINE;
        BLOCK_FOR(line, from > share.begin ? from : share.begin, to < share.end ? to : share.end)
            place(line - from, sums + line * LINE);
    }

    // A matrix in panels, from `begin`, to rows as they lie.
    template <int ROWS, int COLUMNS>
    DEVICE_MEMBER void matrix(int begin, float* to) const {
        lines(begin, ROWS * padded(COLUMNS), [&](int number, float* sum) {
            const int c = number / ROWS * LINE, count = COLUMNS - c;
            float* place = to + number % ROWS * COLUMNS + c;
            if (COLUMNS % LINE == 0) {
                for (int k = 0; k < LINE; k += VECTOR) store_anywhere(place + k, load(sum + k));
                return;
            }
            for (int k = 0; k < LINE; k++) {
                if (k < count)
                    place[k] = sum[k];
                else
                    sum[k] = 0.0f;
            }
        });
    }
};

template <int T, int L = 0>
DEVICE_MEMBER void reduce_tower(const Reduction& reduction, float* gradient) {
    if constexpr (L < DEPTH) {
        constexpr int I = inputs(L), O = hidden(L), WEIGHTS = gradient_layer(T, L), FLAT = flat_layer(T, L);
        reduction.template matrix<I, O>(WEIGHTS, gradient + FLAT);
        reduction.template matrix<1, O>(WEIGHTS + I * padded(O), gradient + FLAT + I * O);
        reduce_tower<T, L + 1>(reduction, gradient);
    } else {
        reduction.lines(gradient_head(T), head_size(T), [&](int number, float* sum) {
            const int output = number % outputs(T), k0 = number / outputs(T) * LINE;
            const bool value = values(T) && output == value_row(T);
            float* place = gradient + (value ? flat_critic_head() : flat_actor_head() + output);
            for (int k = 0; k < LINE; k++) {
                if (k0 + k < LAST)
                    place[(k0 + k) * (value ? 1 : ACTOR)] = sum[k];
                else
                    sum[k] = 0.0f;
            }
        });
        reduction.lines(gradient_bias(T), padded(outputs(T)), [&](int number, float* sum) {
            for (int k = 0; k < LINE; k++) {
                const int output = number * LINE + k;
                if (values(T) && output == value_row(T))
                    gradient[flat_critic_head() + LAST] = sum[k];
                else if (acts(T) && output < ACTOR)
                    gradient[flat_actor_head() + LAST * ACTOR + output] = sum[k];
                else
                    sum[k] = 0.0f;
            }
        });
    }
}

KERNEL mlp_reduce(const float* partials,    // (P, Q)
                  const float* parameters,  // (n)
                  float* sums,              // (Q)
                  float* gradient,          // (n); what is no parameter's stays as it is
                  float* squares,           // (R), a block each
                  float* metrics,           // (METRICS), means over the samples
                  int P, int Q, int n, int R, int samples) {
    SHARED(float, columns, LINE);
    const Range share = block_share(Q / LINE);
    const Reduction reduction{partials, P, Q, share, sums};
    reduction.add();
    reduce_tower<0>(reduction, gradient);
    if constexpr (TOWERS == 2) reduce_tower<1>(reduction, gradient);
#if !LS_DISCRETE
    reduction.lines(gradient_log_std(), LOG_STD_SIZE, [&](int number, float* sum) {
        const float bounds[] = {LS_LOG_STD};
        for (int k = 0; k < LINE; k++) {
            const int d = number * LINE + k;
            const bool own = d < ACTION_WIDTH;
            const float value = own ? parameters[flat_log_std() + d] : 0.0f;
            if (!own || value < bounds[0] || value > bounds[1]) sum[k] = 0.0f;  // a bound passes no gradient
            if (own) gradient[flat_log_std() + d] = sum[k];
        }
    });
#endif
    reduction.lines(GRADIENT_METRICS, padded(METRICS), [&](int, float* sum) {
        for (int k = 0; k < METRICS; k++) metrics[k] = sum[k] / (float)samples;
    });
    BARRIER();
    BLOCK_FOR(v, 0, LINE / VECTOR) {
        vec chain = splat(0.0f);
        const int end = share.end < GRADIENT_METRICS / LINE ? share.end : GRADIENT_METRICS / LINE;
        for (int line = share.begin; line < end; line++) {
            const vec g = load(sums + line * LINE + v * VECTOR);
            chain = fused_multiply_add(g, g, chain);
        }
        store_anywhere(columns + v * VECTOR, chain);
    }
    BARRIER();
    BLOCK_FOR(only, 0, 1) {
        float sum = 0.0f;
        for (int c = 0; c < LINE; c++) sum += columns[c];
        squares[blockIdx.x] = sum;
    }
}
