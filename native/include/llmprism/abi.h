// What every exported function shares: visibility and the ABI version the Python side checks.
#pragma once
#include <cstdint>

#define LLMPRISM_API extern "C" __attribute__((visibility("default")))

namespace llmprism {
// Raised with every exported function that comes, goes or changes, together with native/library.py: an
// editable install keeps the library of yesterday beside the sources of today.
inline constexpr uint32_t kAbiVersion = 4;
}

LLMPRISM_API uint32_t llmprism_abi_version();
