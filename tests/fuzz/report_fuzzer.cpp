// Reports for `actzip plan`: read_report() must throw std::runtime_error or return sites that can be planned.
#include "actzip/actzip.hpp"
#include "cli/report_file.hpp"
#include "input_files.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace actzip;
  static const fuzz::InputFiles files;
  const auto path = files.write("report.json", fuzz::as_text(data, size));
  try {
    std::vector<PlanItem> items;
    for (const cli::PlannedSite& site : cli::read_report(path).sites) {
      items.push_back(
          {site.elems, site.sensitivity.value_or(1.0), plan_choices(site.dtype, site.elems, site.mask_plane)});
    }
    (void)solve_plan(items, AverageBits{2});
  } catch (const std::runtime_error&) {  // actzip::Error is one
    return 0;
  }
  return 0;
}
