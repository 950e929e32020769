// The inbox as views use it: approvals and questions, each by itself, in one list.

/** The requests of a list of the API, open or decided. */
export function requests(source) {
  return (source.data?.items ?? []).map((each) => each.approval ?? each.question);
}
