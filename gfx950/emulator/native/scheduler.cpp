// Which wave executes next. Every order here is one that hardware may choose.
#include <algorithm>
#include <random>
#include <utility>

#include "machine.hpp"

namespace emu {
namespace {

// A wave that waits for another one must not keep it from running, however long "to the barrier" is.
constexpr uint64_t kLongestRun = 100'000;
// Of so many waves whose memory operations come back, one is the wave that has waited longest.
constexpr uint64_t kFairness = 64;

class Scheduler {
 public:
  explicit Scheduler(Launch& launch) : launch_(launch), random_(launch.config.seed) {
    const LaunchConfig& c = launch.config;
    total_ = c.grid[0] * c.grid[1] * c.grid[2];
    for (uint32_t k = 0; k < std::min(std::max(1u, c.workgroups_in_flight), total_); k++) {
      groups_.push_back(std::make_unique<Workgroup>());
      groups_.back()->reset(launch_, next_++);
    }
    collect();
  }

  void run() {
    while (!groups_.empty()) pass();
  }

 private:
  void collect() {
    waves_.clear();
    for (auto& group : groups_)
      for (auto& wave : group->waves) waves_.push_back(wave.get());
    if (Order(launch_.config.order) == Order::Reverse) std::reverse(waves_.begin(), waves_.end());
    changed_ = false;
  }

  // One turn of every wave (random: as many turns as there are waves, in random order).
  void pass() {
    Order order = Order(launch_.config.order);
    uint64_t quantum = order == Order::ToBarrier ? kLongestRun : std::max(1u, launch_.config.quantum);
    size_t count = waves_.size();
    uint64_t before = launch_.clock;
    for (size_t k = 0; k < count && !changed_; k++) {
      Wave& w = *waves_[order == Order::Random ? random_() % count : k];
      turn(w, order == Order::Random ? 1 + random_() % quantum : quantum);
    }
    if (launch_.clock == before && !stalled_.empty()) resume();
    if (changed_) retire();
  }

  // Every wave waits: for memory, at barriers. Loads come back first, stores last and the latest of them first: stores stay
  // on their way while other waves go on for long, which a broken ticket protocol does not survive.
  void resume() {
    auto at = next_to_resume();
    (*at)->status = WaveStatus::Ready;
    (*at)->resumed = true;
    stalled_.erase(at);
  }

  std::vector<Wave*>::iterator next_to_resume() {
    if (Order(launch_.config.order) == Order::Random) return stalled_.begin() + ptrdiff_t(random_() % stalled_.size());
    if (++resumes_ % kFairness == 0) return stalled_.begin();
    auto loads = std::find_if(stalled_.begin(), stalled_.end(), [](Wave* w) { return !has_posted_stores(*w); });
    return loads != stalled_.end() ? loads : stalled_.end() - 1;
  }

  bool stalls(Wave& w, const Inst& i) {
    if (!launch_.config.stalls || !waits_for_memory(w, i)) return false;
    if (std::exchange(w.resumed, false)) return false;
    w.status = WaveStatus::Stalled;
    stalled_.push_back(&w);
    return true;
  }

  void turn(Wave& w, uint64_t quantum) {
    const Inst* code = launch_.program->code.data();
    quantum = std::min(quantum, launch_.config.budget - w.executed);
    uint64_t left = quantum;
    for (w.yield = false; left && w.status == WaveStatus::Ready && !w.yield; left--) {
      const Inst& i = code[w.pc];
      if (stalls(w, i)) [[unlikely]] break;
      w.inst = w.pc++;
      launch_.executed[w.inst]++;
      launch_.clock++;
      if (i.hazard_consumer) [[unlikely]] check_hazard_consumer(w, i);
      if (i.hazard_producer) [[unlikely]] note_hazard_producer(w, i);
      w.hazards.now += i.wait_states;
      if (!(w.vskip && i.vector)) [[likely]] i.run(w, i);
      if (launch_.config.instant) [[unlikely]] finish_pending(w);
    }
    w.executed += quantum - left;
    if (w.executed >= launch_.config.budget) [[unlikely]] report(w, {.kind = FindingKind::Runaway, .other_inst = w.loop, .fatal = true});
    if (w.status != WaveStatus::Ready) settle(*w.group);
  }

  // A wave stopped: perhaps its barrier is complete, perhaps its workgroup is.
  void settle(Workgroup& group) {
    if (group.live == 0) {
      changed_ = true;
    } else if (group.waiting == group.live) {
      group.waiting = 0;
      group.lds.next_epoch();
      for (auto& wave : group.waves) {
        if (wave->status == WaveStatus::AtBarrier) wave->status = WaveStatus::Ready;
        retag_lds_in_flight(*wave);
      }
    }
  }

  void retire() {
    for (auto& group : groups_)
      if (group->live == 0 && next_ < total_) group->reset(launch_, next_++);
    std::erase_if(groups_, [](auto& group) { return group->live == 0; });
    collect();
  }

  Launch& launch_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Workgroup>> groups_;
  std::vector<Wave*> waves_;
  std::vector<Wave*> stalled_;  // in the order in which they began to wait
  uint64_t resumes_ = 0;
  uint32_t next_ = 0, total_;
  bool changed_ = false;
};

}  // namespace

void run(Launch& launch) {
  try {
    Scheduler(launch).run();
  } catch (const Stop&) {
  }
  launch.memory.finish();
}

}  // namespace emu
