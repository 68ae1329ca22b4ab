#include "settings.h"

#include <cstdlib>

namespace {

std::string text(const char* name, const char* otherwise) {
    const char* found = std::getenv((std::string("SIMULATED_CARD_") + name).c_str());
    return found && *found ? found : otherwise;
}

Bytes number(const char* name, Bytes otherwise) {
    const std::string found = text(name, "");
    return found.empty() ? otherwise : std::strtoull(found.c_str(), nullptr, 10);
}

Settings read() {
    Settings read;
    read.name = text("NAME", "NVIDIA GeForce RTX 3060");
    read.count = static_cast<int>(number("COUNT", 1));
    read.total = number("BYTES", 12288 * MIB);
    read.context = number("CONTEXT_BYTES", 300 * MIB);
    read.others = number("OTHERS_BYTES", 0);
    read.major = static_cast<int>(number("CAPABILITY", 86)) / 10;
    read.minor = static_cast<int>(number("CAPABILITY", 86)) % 10;
    read.multiprocessors = static_cast<int>(number("MULTIPROCESSORS", 28));
    read.virtual_memory = number("VIRTUAL_MEMORY", 1) != 0;
    read.descends_from = number("DESCENDS_FROM_BYTES", 32 * MIB);
    read.convolution_workspace = number("CONVOLUTION_BYTES", 0);
    read.trace = number("TRACE", 0) != 0;
    read.table = text("TABLE", "");
    return read;
}

}  // namespace

const Settings& settings() {
    static const Settings* once = new Settings(read());  // never destroyed: other destructors ask for it
    return *once;
}
