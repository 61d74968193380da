#include "llmprism/abi.h"

uint32_t llmprism_abi_version() { return llmprism::kAbiVersion; }
