// BLAKE2b of 8 bytes without a key (RFC 7693), the hash of request handles.
#pragma once
#include <cstddef>
#include <cstdint>

namespace llmprism {

uint64_t hash_blake2b_64(const uint8_t* text, size_t size);

}  // namespace llmprism
