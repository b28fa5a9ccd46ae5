declare module "virtual:formulas" {
  const table: Record<string, string>;
  export default table;
}

declare module "virtual:ramps" {
  const table: { viridis: string; diverging: string };
  export default table;
}
