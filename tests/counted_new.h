// Every operator new of the process, counted: for programs that have counted_new.cc among their sources, and
// no sanitizer, which allocates in its own way.
#pragma once

namespace talweg {

// So far, of all threads.
long allocations();

// After so many more on this thread one throws std::bad_alloc, once. Below 0: none does.
void run_out_of_memory_after(long more);

}  // namespace talweg
