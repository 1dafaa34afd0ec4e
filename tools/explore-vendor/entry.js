export { hierarchy, treemap } from "d3-hierarchy";
export * as dagre from "@dagrejs/dagre";
