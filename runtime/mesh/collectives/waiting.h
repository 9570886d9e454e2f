#pragma once
// What communication costs a thread after all that is hidden behind other work.

namespace quintet {

/// Seconds that this thread has waited for collectives (Pending::wait).
double seconds_in_collectives();

}  // namespace quintet
