// QueueShare: what of the queues on the way each of a host's flows may have. While they all send, as when
// each rank has something for each other one, as many meet at every port: together they have what one has
// alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

namespace talweg::protocol {

class QueueShare {
 public:
  // One flow's. Of one thread, as all of its share.
  class Part {
   public:
    // `share`: null: this flow's alone.
    explicit Part(std::shared_ptr<QueueShare> share) : share_(std::move(share)) {}
    ~Part() { busy(false); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    // The flow has something on its way, or that is to leave; or nothing any more.
    void busy(bool is) {
      if (!share_ || std::exchange(busy_, is) == is) return;
      is ? ++share_->busy_ : --share_->busy_;
    }
    double of(double bytes) const {
      return share_ ? bytes / static_cast<double>(std::max<std::size_t>(1, share_->busy_)) : bytes;
    }

   private:
    std::shared_ptr<QueueShare> share_;
    bool busy_ = false;
  };

 private:
  std::size_t busy_ = 0;
};

}  // namespace talweg::protocol
