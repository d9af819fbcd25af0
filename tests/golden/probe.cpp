// Denormals, signed zeros, infinities and NaN: what arithmetic and kernels/math.cuh make of them, and of numbers of all
// sizes between, in one hash. A vector's lanes have to agree with one number. NaN is NaN: which of its bit patterns came
// out is the machine's own.
#include "../../kernels/math.cuh"
#include "report.h"

constexpr char EXPECTED[] = "eea0f9098cefcc1911f4fac6531e84092eb81b38eb1b9bcad01b158d6c88db40";

// Not known to the compiler, so that the machine computes, not it.
static const volatile unsigned SPECIAL[] = {
    0x00000000, 0x80000000,                          // zeros
    0x00000001, 0x80000001, 0x00400000, 0x007fffff,  // denormals
    0x807fffff, 0x00800000, 0x80800000,              // the least normal numbers
    0x0c000000, 0x1f800000, 0x9f800000,              // whose products are denormal, or nothing
    0x3f800000, 0xbf800000, 0x3f7fffff, 0x3f000000,  // 1, -1, just under 1, 0.5
    0x40400000, 0xc0400000, 0x3fc90fdb, 0x42aeac50,  // 3, -3, pi / 2, where exp_ is clamped
    0xc2aeac50, 0x45fa0000, 0x7f7fffff, 0xff7fffff,  // 8000, the largest numbers
    0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000,  // infinities, NaN
};

static Sha256 hash;
static int disagreements = 0;

static void number(float value) { hash.word(value != value ? 0x7fc00000u : as_bits(value)); }

// One result of a function that is written once for a number and for a vector.
template <class Function, class... Arguments>
static void probe(Function function, Arguments... arguments) {
    const float one = function(arguments...);
    const vec many = function(splat(arguments)...);
    for (int l = 0; l < VECTOR; l++)
        disagreements += !(many[l] == one && as_bits(many[l]) == as_bits(one)) && !(many[l] != many[l] && one != one);
    number(one);
}

static void probe_functions(float x) {
    probe([](auto a) { return exp_(a); }, x);
    probe([](auto a) { return log_(a); }, x);
    probe([](auto a) { return tanh_(a); }, x);
    probe([](auto a) { return square_root(a); }, x);
    probe([](auto a) { return clamp(a, -1.0f, 1.0f); }, x);
    probe([](auto a) { return -a; }, x);
    const SinCos angle = sincos_(x);
    number(angle.sin);
    number(angle.cos);
}

int main() {
    for (unsigned i = 0; i < 32768; i++) {
        const float x = as_float(i * 131101u);  // over all bit patterns
        if (x == x) probe_functions(x);
    }
    for (unsigned x_bits : SPECIAL) {
        const float x = as_float(x_bits);
        probe_functions(x);
        for (unsigned y_bits : SPECIAL) {
            const float y = as_float(y_bits);
            probe([](auto a, auto b) { return a + b; }, x, y);
            probe([](auto a, auto b) { return a - b; }, x, y);
            probe([](auto a, auto b) { return a * b; }, x, y);
            probe([](auto a, auto b) { return a / b; }, x, y);
            probe([](auto a, auto b) { return select(a < b, a, b); }, x, y);
            for (unsigned z_bits : SPECIAL)
                probe([](auto a, auto b, auto c) { return fused_multiply_add(a, b, c); }, x, y, as_float(z_bits));
        }
    }
    if (disagreements) printf("%d lanes of vectors of %d do not agree with one number\n", disagreements, VECTOR);
    return report("special values", hash, EXPECTED) && !disagreements ? 0 : 1;
}
