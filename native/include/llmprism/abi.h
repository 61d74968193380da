// What every exported function shares: visibility and the ABI version the Python side checks.
#pragma once
#include <cstdint>

#define LLMPRISM_API extern "C" __attribute__((visibility("default")))

namespace llmprism {
inline constexpr uint32_t kAbiVersion = 1;
}

LLMPRISM_API uint32_t llmprism_abi_version();
