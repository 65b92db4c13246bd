/** What stands beside the open panel on a wide screen: the diagnosis of what is looked at. */
export { DiagnosisAside as Aside } from "./diagnosis";
