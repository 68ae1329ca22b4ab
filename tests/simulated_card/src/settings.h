// What the simulated card is: read once from environment variables that scripts/simulated_card.py sets.
#pragma once

#include <cstdint>
#include <string>

using Bytes = std::uint64_t;

constexpr Bytes MIB = Bytes(1) << 20;
constexpr Bytes GRANULE = 2 * MIB;  // of cudaMalloc and of virtual memory, as on every card since Volta
constexpr int MOST_CARDS = 8;

struct Settings {
    std::string name;              // as the driver says it
    int count;                     // cards, all alike
    Bytes total;                   // of each
    Bytes context;                 // what a process takes of a card with its first call
    Bytes others;                  // what some other program holds of each, all the time
    int major, minor;              // compute capability
    int multiprocessors;
    bool virtual_memory;           // without it torch's segments do not expand
    Bytes descends_from;           // sizes of cudaMalloc that the driver places at descending addresses
    Bytes convolution_workspace;   // what cuDNN asks for at each convolution
    bool trace;                    // say once for each function without an implementation that it was called
    std::string table;             // file of the memory that processes hold
};

const Settings& settings();
