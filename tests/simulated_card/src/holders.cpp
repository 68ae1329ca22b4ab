#include "holders.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <mutex>

namespace {

Holder* table() {
    static Holder* const rows = [] {
        const std::size_t size = MOST_HOLDERS * sizeof(Holder);
        void* place = MAP_FAILED;
        if (!settings().table.empty()) {
            const int file = open(settings().table.c_str(), O_RDWR | O_CREAT, 0600);
            if (file >= 0 && ftruncate(file, static_cast<off_t>(size)) == 0)
                place = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            if (file >= 0) close(file);
        }
        if (place == MAP_FAILED)  // seen by this process and those it forks
            place = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (place == MAP_FAILED) std::abort();
        return static_cast<Holder*>(place);
    }();
    return rows;
}

Holder* row_ = nullptr;

Holder& own_row() {
    const int pid = getpid();
    if (row_ && row_->pid == pid) return *row_;  // a forked process finds its parent's and takes one of its own
    for (Holder* row = table(); row != table() + MOST_HOLDERS; row++) {
        std::int32_t seen = row->pid;
        if (seen != pid && is_alive(*row)) continue;
        if (!__atomic_compare_exchange_n(&row->pid, &seen, pid, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
        std::fill(std::begin(row->held), std::end(row->held), 0);
        return *(row_ = row);
    }
    std::abort();
}

__attribute__((destructor)) void leave() {
    if (!row_ || row_->pid != getpid()) return;
    std::fill(std::begin(row_->held), std::end(row_->held), 0);
    row_->pid = 0;
}

}  // namespace

bool is_alive(const Holder& holder) { return holder.pid && (kill(holder.pid, 0) == 0 || errno == EPERM); }

const Holder* holders() { return table(); }

bool has_context(int card) { return row_ && row_->pid == getpid() && row_->held[card]; }

void open_context(int card) {
    if (!has_context(card)) own_row().held[card] = settings().context;
}

bool take(int card, Bytes size) {
    static std::mutex lock;  // of this process; two processes that ask at once may get a little too much together
    const std::lock_guard<std::mutex> held(lock);
    open_context(card);
    if (used_bytes(card) + size > settings().total) return false;
    __atomic_add_fetch(&own_row().held[card], size, __ATOMIC_SEQ_CST);
    return true;
}

void give_back(int card, Bytes size) { __atomic_sub_fetch(&own_row().held[card], size, __ATOMIC_SEQ_CST); }

Bytes used_bytes(int card) {
    Bytes sum = settings().others;
    for (const Holder* row = table(); row != table() + MOST_HOLDERS; row++)
        if (is_alive(*row)) sum += row->held[card];
    return std::min(sum, settings().total);
}
