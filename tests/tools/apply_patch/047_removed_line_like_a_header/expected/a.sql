-- new
select 1;
