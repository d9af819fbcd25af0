// SHA-256 (FIPS 180-4), its constants computed from their definition: roots of the first primes.
#pragma once

class Sha256 {
public:
    Sha256() {
        int count = 0;
        for (unsigned p = 2; count < 64; p++) {
            bool prime = true;
            for (unsigned d = 2; d * d <= p; d++) prime = prime && p % d;
            if (!prime) continue;
            if (count < 8) state_[count] = fraction(p, 2);
            k_[count++] = fraction(p, 3);
        }
    }

    void byte(unsigned value) {
        block_[length_++ % 64] = (unsigned char)value;
        if (length_ % 64 == 0) compress();
    }

    // Least significant byte first, on every machine.
    void word(unsigned value) {
        for (int shift = 0; shift < 32; shift += 8) byte(value >> shift & 255);
    }

    // Ends the message and writes its hash, 64 hexadecimal digits and a zero.
    void finish(char* digits) {
        const unsigned long long bits = length_ * 8;
        byte(0x80);
        while (length_ % 64 != 56) byte(0);
        for (int shift = 56; shift >= 0; shift -= 8) byte((unsigned)(bits >> shift) & 255);
        for (int i = 0; i < 64; i++) digits[i] = "0123456789abcdef"[state_[i / 8] >> (28 - i % 8 * 4) & 15];
        digits[64] = 0;
    }

private:
    // The first 32 bits behind the point of a root of p, the square or the cube root.
    static unsigned fraction(unsigned p, int degree) {
        typedef unsigned __int128 Wide;
        const Wide radicand = (Wide)p << (32 * degree);
        unsigned long long root = 0;
        for (int bit = 36; bit >= 0; bit--) {
            const unsigned long long wider = root | 1ull << bit;
            const Wide power = degree == 2 ? (Wide)wider * wider : (Wide)wider * wider * wider;
            if (power <= radicand) root = wider;
        }
        return (unsigned)root;
    }

    static unsigned turned(unsigned x, int n) { return x >> n | x << (32 - n); }

    void compress() {
        unsigned w[64], h[8];
        for (int i = 0; i < 16; i++) {
            w[i] = 0;
            for (int b = 0; b < 4; b++) w[i] = w[i] << 8 | block_[4 * i + b];
        }
        for (int i = 16; i < 64; i++)
            w[i] = w[i - 16] + w[i - 7] + (turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3) +
                   (turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10);
        for (int i = 0; i < 8; i++) h[i] = state_[i];
        for (int i = 0; i < 64; i++) {
            const unsigned one = h[7] + (turned(h[4], 6) ^ turned(h[4], 11) ^ turned(h[4], 25)) +
                                 ((h[4] & h[5]) ^ (~h[4] & h[6])) + k_[i] + w[i];
            const unsigned two = (turned(h[0], 2) ^ turned(h[0], 13) ^ turned(h[0], 22)) +
                                 ((h[0] & h[1]) ^ (h[0] & h[2]) ^ (h[1] & h[2]));
            for (int j = 7; j > 0; j--) h[j] = h[j - 1];
            h[4] += one;
            h[0] = one + two;
        }
        for (int i = 0; i < 8; i++) state_[i] += h[i];
    }

    unsigned state_[8], k_[64];
    unsigned char block_[64];
    unsigned long long length_ = 0;
};
