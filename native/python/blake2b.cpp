#include "blake2b.h"

#include <bit>
#include <cstring>

namespace llmprism {
namespace {

constexpr size_t kBlock = 128;
constexpr int kRounds = 12;
constexpr uint64_t kStart[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};
constexpr uint8_t kOrder[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

void mix(uint64_t* v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] = v[a] + v[b] + x;
    v[d] = std::rotr(v[d] ^ v[a], 32);
    v[c] = v[c] + v[d];
    v[b] = std::rotr(v[b] ^ v[c], 24);
    v[a] = v[a] + v[b] + y;
    v[d] = std::rotr(v[d] ^ v[a], 16);
    v[c] = v[c] + v[d];
    v[b] = std::rotr(v[b] ^ v[c], 63);
}

void compress(uint64_t* state, const uint8_t* block, uint64_t so_far, bool is_last) {
    static_assert(std::endian::native == std::endian::little);
    uint64_t m[16], v[16];
    std::memcpy(m, block, kBlock);
    std::memcpy(v, state, sizeof kStart);
    std::memcpy(v + 8, kStart, sizeof kStart);
    v[12] ^= so_far;
    if (is_last) v[14] = ~v[14];
    for (int round = 0; round < kRounds; ++round) {
        const uint8_t* s = kOrder[round % 10];
        for (int lane = 0; lane < 4; ++lane) {
            mix(v, lane, lane + 4, lane + 8, lane + 12, m[s[2 * lane]], m[s[2 * lane + 1]]);
        }
        for (int lane = 0; lane < 4; ++lane) {
            const int b = 4 + (lane + 1) % 4, c = 8 + (lane + 2) % 4, d = 12 + (lane + 3) % 4;
            mix(v, lane, b, c, d, m[s[8 + 2 * lane]], m[s[9 + 2 * lane]]);
        }
    }
    for (int at = 0; at < 8; ++at) state[at] ^= v[at] ^ v[at + 8];
}

}  // namespace

uint64_t hash_blake2b_64(const uint8_t* text, size_t size) {
    uint64_t state[8];
    std::memcpy(state, kStart, sizeof state);
    state[0] ^= 0x01010000 ^ 8;
    size_t at = 0;
    for (; size - at > kBlock; at += kBlock) compress(state, text + at, at + kBlock, false);
    uint8_t rest[kBlock] = {};
    if (size > at) std::memcpy(rest, text + at, size - at);
    compress(state, rest, size, true);
    return state[0];
}

}  // namespace llmprism
