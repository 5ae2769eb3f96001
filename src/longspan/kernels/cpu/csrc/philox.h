// Dropout's random words: Philox 4x32-10, as in longspan/kernels/philox.py.

LONGSPAN_INLINE void philox_words(uint64_t seed, uint32_t j, uint32_t i, uint32_t h, uint32_t b,
                                  uint32_t words[4]) {
    uint32_t c0 = j, c1 = i, c2 = h, c3 = b;
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t first = uint64_t{c0} * 0xD2511F53u, second = uint64_t{c2} * 0xCD9E8D57u;
        const uint32_t n0 = static_cast<uint32_t>(second >> 32) ^ c1 ^ k0;
        const uint32_t n2 = static_cast<uint32_t>(first >> 32) ^ c3 ^ k1;
        c1 = static_cast<uint32_t>(second);
        c3 = static_cast<uint32_t>(first);
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}
